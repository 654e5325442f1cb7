package sqlfence

import (
	"testing"
	"time"
)

func TestBackoffIsBounded(t *testing.T) {
	for _, attempt := range []int{1, 2, 5, 8, 10, 11, 64, 1 << 40} {
		bound := maxBackoff
		if attempt < 7 {
			bound = firstBackoff << (attempt - 1)
		}
		for range 200 {
			if d := backoff(attempt); d <= 0 || d > bound {
				t.Fatalf("attempt %d: %v, want at most %v", attempt, d, bound)
			}
		}
	}
	if got := backoff(1); got > 2*time.Millisecond {
		t.Errorf("first wait %v", got)
	}
}
