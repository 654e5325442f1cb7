package zxid

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
)

func TestIDIsEpochThenCounter(t *testing.T) {
	for _, x := range []struct {
		epoch, counter uint32
		want           ID
	}{
		{0, 0, 0},
		{0, 1, 1},
		{1, 0, 1 << 32},
		{0x2a, 0x1f3c, 0x2a00001f3c},
		{0, math.MaxUint32, 1<<32 - 1},
		{MaxEpoch, math.MaxUint32, math.MaxInt64},
	} {
		z := Make(x.epoch, x.counter)
		if z != x.want || z.Epoch() != x.epoch || z.Counter() != x.counter {
			t.Errorf("Make(%d, %d) = %v (%d, %d), want %v", x.epoch, x.counter, z, z.Epoch(), z.Counter(), x.want)
		}
		if int64(z) < 0 {
			t.Errorf("%v is negative as a signed number", z)
		}
	}
}

func TestNextIsAlwaysLarger(t *testing.T) {
	for _, x := range []struct{ z, want ID }{
		{0, 1},
		{Make(3, 0), Make(3, 1)},
		{Make(3, math.MaxUint32-1), Make(3, math.MaxUint32)},
		{Make(3, math.MaxUint32), Make(4, 1)}, // the epoch opens by itself, at counter 1
		{Make(0, math.MaxUint32), Make(1, 1)},
	} {
		if got := x.z.Next(); got != x.want || got <= x.z {
			t.Errorf("%v.Next() = %v, want %v", x.z, got, x.want)
		}
	}
}

// TestWritesGoOnOverTheEndOfTheCounter takes 200 transactions over the
// boundary: ids rise, none comes twice, and none has the counter 0, which is
// that of NewEpoch.
func TestWritesGoOnOverTheEndOfTheCounter(t *testing.T) {
	z := Make(7, math.MaxUint32-100)
	for range 200 {
		next := z.Next()
		if next <= z || next.Counter() == 0 {
			t.Fatalf("%v follows %v", next, z)
		}
		z = next
	}
	if want := Make(8, 100); z != want {
		t.Errorf("after 200 transactions %v, want %v", z, want)
	}
}

func TestParseReadsBothForms(t *testing.T) {
	for text, want := range map[string]ID{
		"0": 0, "0x0": 0, "1": 1, "0x2a00001f3c": 0x2a00001f3c, "0X2A00001F3C": 0x2a00001f3c, "180388634428": 0x2a00001f3c,
		"9223372036854775807": math.MaxInt64, "0x7fffffffffffffff": math.MaxInt64, "0x00000000000000000001": 1, "007": 7,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "0x", "x", "-1", "+1", " 1", "1 ", "1_0", "0x1_0", "2a", "0x2g", "1.0", "1e3", "0b1", "0o7", "0x-1", "0x0x1",
		"9223372036854775808", "0x8000000000000000", "18446744073709551616", "\x00", "١", strings.Repeat("9", 100_000),
	} {
		got, err := Parse(text)
		if !errors.Is(err, ErrSyntax) || got != 0 {
			t.Errorf("Parse(%.30q) = %v, %v, want ErrSyntax", text, got, err)
		} else if len(err.Error()) > 300 {
			t.Errorf("Parse(%.30q): the message has %d bytes", text, len(err.Error()))
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"0", "0x0", "0x2a00001f3c", "180388634428", "9223372036854775807", "0x8000000000000000", "-1", "0X1F"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		z, err := Parse(s)
		if err != nil {
			if !errors.Is(err, ErrSyntax) || z != 0 {
				t.Fatalf("Parse(%q) = %v, %v", s, z, err)
			}
			return
		}
		if int64(z) < 0 {
			t.Fatalf("Parse(%q) = %v is negative as a signed number", s, z)
		}
		for _, text := range []string{z.String(), strconv.FormatUint(uint64(z), 10), strings.ToUpper(z.String())} {
			if again, err := Parse(text); err != nil || again != z {
				t.Fatalf("Parse(%q) = %v, but Parse(%q) = %v, %v", s, z, text, again, err)
			}
		}
	})
}
