// Package freeport finds ports for servers that tests start as processes.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Range finds the first of count ports in a row that nobody uses on loopback,
// below the range from which the kernel takes ports for outgoing connections. The
// test fails if there are none.
func Range(t testing.TB, count int) int {
	t.Helper()
	for range 200 {
		base := 12000 + 10*rand.IntN(1900)
		if Free(base, count) {
			return base
		}
	}
	t.Fatal("no free ports on loopback")
	return 0
}

// Free says whether nobody uses any of count ports in a row on loopback.
func Free(base, count int) bool {
	for port := base; port < base+count; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
