package tempserver

import (
	"fmt"
	"testing"
)

func TestTailKeepsTheEnd(t *testing.T) {
	log := new(tail)
	for i := range 3000 {
		fmt.Fprintf(log, "%04d", i)
	}
	if got := log.String(); len(got) != maxTail || got[maxTail-4:] != "2999" {
		t.Errorf("%d bytes that end in %q, want %d that end in 2999", len(got), got[len(got)-4:], maxTail)
	}
}
