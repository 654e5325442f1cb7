// Package sim runs whole clusters in fake time, with everything that goes wrong
// in years happening in minutes: servers that are killed in the middle of a
// write, restarted, wiped, frozen, cut off in one direction or both, with slow,
// stalled and hanging disks and wrong clocks; clients that pause, vanish and
// come back; forwarded commands that arrive twice and in another order.
//
// The servers and clients are the real ones. Only what is outside of them is
// simulated: the network (internal/memnet), the clock (testing/synctest), and
// the moment at which a disk writes. A run is a schedule of faults, a load of
// clients, and at its end a judgement over all that clients saw: Run.
//
// The schedule is made from the seed alone: the same seed always gives the same
// one. What servers and clients do in it is not wholly determined: goroutines of
// one moment run in the order the Go scheduler likes, and identities and nonces
// are random. So a seed that has found something finds it often, not always.
package sim
