package main

import "testing"

func TestHeapGrowsByAFixedAmountWithinBounds(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 800}, {1 << 20, 800}, {32 << 20, 200}, {64 << 20, 100}, {256 << 20, 25}, {4 << 30, 15}} {
		if got := gcPercent(c.live); got != c.want {
			t.Errorf("%d MiB live: %d %%, want %d %%", c.live>>20, got, c.want)
		}
	}
}
