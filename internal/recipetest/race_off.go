//go:build !race

package recipetest

// slow says that everything takes several times as long.
const slow = false
