// Package recipetest shows what a recipe does when something goes wrong at any
// moment of its use. EachStep runs a scenario again and again against a real
// server in fake time, each time with one fault at another message of the client:
// the caller gives up, the message is lost, the link is cut, the session expires,
// the process is killed or paused. After each run three things must hold:
//
//   - nobody else waits for ever: the rivals of the client get their turn,
//   - two never hold at the same time what one may hold, and tokens rise,
//   - nothing is left of the client once it has left or its session has expired.
package recipetest
