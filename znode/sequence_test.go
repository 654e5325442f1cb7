package znode

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestSequenceIsTheNumberANameEndsIn(t *testing.T) {
	for name, want := range map[string]struct {
		number uint64
		ok     bool
	}{
		"lock-0000000000":                    {0, true},
		"0000000007":                         {7, true},
		"_c_9a-lock-10000000000":             {10_000_000_000, true},
		"__lock__0123456789":                 {123_456_789, true},
		"a18446744073709551615":              {18_446_744_073_709_551_615, true},
		"a000000000018446744073709551615":    {18_446_744_073_709_551_615, true},
		"a18446744073709551616":              {0, false},
		"a99999999999999999999":              {0, false},
		"a100000000000000000000":             {0, false},
		"a" + strings.Repeat("0", 90) + "5":  {5, true},
		"a1" + strings.Repeat("0", 90) + "5": {0, false},
		"lock-000000001":                     {0, false},
		"x-12":                               {0, false},
		"readme":                             {0, false},
		"":                                   {0, false},
		"0000000001-":                        {0, false},
		"-00000000:1":                        {0, false},
		"-0000000/001":                       {0, false},
		"lock-٠٠٠٠٠٠٠٠٠١":                    {0, false},
		"n-2147483648":                       {2_147_483_648, true},
		"lock-9999999999" + string([]byte{'0', '1'}): {999_999_999_901, true},
	} {
		if n, ok := SequenceOf(name); ok != want.ok || ok && n != want.number {
			t.Errorf("%q: %d, %v; want %d, %v", name, n, ok, want.number, want.ok)
		}
	}
}

// sequenceSlowly says the same as SequenceOf in another way.
func sequenceSlowly(name string) (uint64, bool) {
	digits := name[len(strings.TrimRight(name, "0123456789")):]
	if len(digits) < 10 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

func FuzzSequenceOf(f *testing.F) {
	for _, s := range []string{"a18446744073709551616", "lock-0000000001", "", "x\xff0000000001", "a00018446744073709551615"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		want, ok := sequenceSlowly(name)
		if n, got := SequenceOf(name); got != ok || ok && n != want {
			t.Fatalf("%q: %d, %v; want %d, %v", name, n, got, want, ok)
		}
	})
}

// TestPredecessorIsTheLargestBelow compares with a sorted list, while children
// come and go.
func TestPredecessorIsTheLargestBelow(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	tt := newTester(t)
	tt.must(Op{Kind: OpCreate, Path: "/q"})
	var names []string
	check := func() {
		t.Helper()
		type entry struct {
			n    uint64
			name string
		}
		var q []entry
		for _, name := range names {
			if n, ok := sequenceSlowly(name); ok {
				q = append(q, entry{n, name})
			}
		}
		slices.SortFunc(q, func(a, b entry) int { return cmp.Or(cmp.Compare(a.n, b.n), strings.Compare(a.name, b.name)) })
		for i, e := range q {
			before, ahead, st, err := tt.tree.Predecessor("/q", e.name, "", &Caller{})
			want := ""
			if i > 0 {
				want = q[i-1].name
			}
			own, _ := tt.tree.Exists("/q/" + e.name)
			if err != nil || before != want || ahead != i || st != own {
				t.Fatalf("before %s: %q, %d ahead, %+v, %v; want %q, %d, %+v", e.name, before, ahead, st, err, want, i, own)
			}
			for _, text := range []string{"a", "7-", "0000", "no such"} {
				want := ""
				for _, o := range q[:i] {
					if strings.Contains(o.name, text) {
						want = o.name
					}
				}
				before, ahead, st, err := tt.tree.Predecessor("/q", e.name, text, &Caller{})
				if err != nil || before != want || ahead != i || st != own {
					t.Fatalf("%q before %s: %q, %d ahead, %+v, %v; want %q, %d, %+v", text, e.name, before, ahead, st, err, want, i, own)
				}
			}
		}
	}
	check()
	for i := range 300 {
		switch r.IntN(8) {
		case 0:
			name := fmt.Sprintf("plain-%d", i)
			tt.must(Op{Kind: OpCreate, Path: "/q/" + name})
			names = append(names, name)
		case 1: // a number that is taken already, or out of order
			name := fmt.Sprintf("%x-%010d", r.Uint32(), r.IntN(i+1))
			tt.must(Op{Kind: OpCreate, Path: "/q/" + name})
			names = append(names, name)
		case 2:
			if len(names) == 0 {
				continue
			}
			k := r.IntN(len(names))
			tt.must(Op{Kind: OpDelete, Path: "/q/" + names[k], Version: AnyVersion})
			names = slices.Delete(names, k, k+1)
		default:
			made := tt.must(Op{Kind: OpCreate, Path: fmt.Sprintf("/q/%08x-", r.Uint32()), Sequential: true})
			names = append(names, strings.TrimPrefix(made.Path, "/q/"))
		}
		if i == 150 { // the eleventh digit
			if err := tt.tree.SetSequence("/q", 9_999_999_990); err != nil {
				t.Fatal(err)
			}
		}
		if i%50 == 49 {
			check()
		}
	}
	check()
}

func TestPredecessorRefusesWhatHasNone(t *testing.T) {
	tt := newTester(t)
	tt.must(Op{Kind: OpCreate, Path: "/q"})
	tt.must(Op{Kind: OpCreate, Path: "/q/readme"})
	tt.must(Op{Kind: OpCreate, Path: "/closed", ACL: []ACL{{Perms: PermCreate, Scheme: "world", ID: "anyone"}}})
	tt.must(Op{Kind: OpCreate, Path: "/closed/a-0000000001"})
	for _, c := range []struct {
		path, child string
		want        error
	}{
		{"/q", "readme", ErrBadArguments},
		{"/q", "", ErrBadArguments},
		{"/q", "a-0000000001", ErrNoNode},
		{"/none", "a-0000000001", ErrNoNode},
		{"q", "a-0000000001", ErrNoNode},
		{"/closed", "a-0000000001", ErrNoAuth},
		{"/", "closed/a-0000000001", ErrNoNode},
	} {
		if _, _, _, err := tt.tree.Predecessor(c.path, c.child, "", &Caller{}); !errors.Is(err, c.want) {
			t.Errorf("%s of %s: %v, want %v", c.child, c.path, err, c.want)
		}
	}
}

// BenchmarkPredecessor is what one step of a queue costs the server.
func BenchmarkPredecessor(b *testing.B) {
	for _, n := range []int{16, 256, 2000, 10_000} {
		tree := New()
		tx := &Tx{Caller: &Caller{}, Time: 1}
		create := func(path string, sequential bool) string {
			tx.Zxid++
			tx.Changes = tx.Changes[:0]
			r, err := tree.Apply(tx, &Op{Kind: OpCreate, Path: path, Data: make([]byte, 80), ACL: OpenACL, Sequential: sequential})
			if err != nil {
				b.Fatal(err)
			}
			return r.Path
		}
		create("/q", false)
		r := rand.New(rand.NewPCG(1, 1))
		var names []string
		for range n {
			p := create(fmt.Sprintf("/q/_c_%016x-%016x-lock-", r.Uint64(), r.Uint64()), true)
			names = append(names, strings.TrimPrefix(p, "/q/"))
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, _, _, err := tree.Predecessor("/q", names[i%n], "", tx.Caller); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
