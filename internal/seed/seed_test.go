package seed

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// witness is a test that only writes down what is told to it.
type witness struct {
	testing.TB
	logged, fatal string
}

func (w *witness) Helper() {}

func (w *witness) Logf(format string, args ...any) { w.logged = fmt.Sprintf(format, args...) }

func (w *witness) Fatalf(format string, args ...any) {
	w.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// ask asks for a seed as a test would that may end there.
func ask() (seed uint64, w *witness) {
	w = &witness{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		seed = New(w)
	}()
	<-done
	return seed, w
}

func TestGivenSeedIsTaken(t *testing.T) {
	for text, want := range map[string]uint64{"7": 7, "0": 0, "0x10": 16, "18446744073709551615": 1<<64 - 1} {
		t.Setenv(variable, text)
		if got, w := ask(); got != want || w.logged != fmt.Sprintf("repeat with COORD_SEED=%d", want) {
			t.Errorf("%s gives %d, and says %q", text, got, w.logged)
		}
	}
}

func TestSameSeedGivesTheSameNumbers(t *testing.T) {
	t.Setenv(variable, "7")
	one, two := Rand(&witness{}), Rand(&witness{})
	for range 100 {
		if a, b := one.Uint64(), two.Uint64(); a != b {
			t.Fatalf("%d and %d", a, b)
		}
	}
}

func TestNewSeedIsAnotherOneEachTimeAndShort(t *testing.T) {
	t.Setenv(variable, "")
	one, w := ask()
	two, _ := ask()
	if one == two || one >= 1<<40 || two >= 1<<40 {
		t.Errorf("seeds %d and %d", one, two)
	}
	if want := fmt.Sprintf("repeat with COORD_SEED=%d", one); w.logged != want {
		t.Errorf("it says %q, want %q", w.logged, want)
	}
}

func TestBadSeedIsRefusedByName(t *testing.T) {
	for _, text := range []string{"x", "-1", "1.5", " 7", "18446744073709551616"} {
		t.Setenv(variable, text)
		if _, w := ask(); !strings.Contains(w.fatal, variable) || !strings.Contains(w.fatal, text) {
			t.Errorf("%q: it says %q", text, w.fatal)
		}
	}
}
