package znode

import (
	"errors"
	"slices"
	"testing"
)

func who(ids ...string) *Caller {
	c := &Caller{}
	for i := 0; i+1 < len(ids); i += 2 {
		c.Identities = append(c.Identities, Identity{Scheme: ids[i], ID: ids[i+1]})
	}
	return c
}

func TestWhoMatchesWhichEntry(t *testing.T) {
	nobody := who()
	for _, x := range []struct {
		name   string
		entry  ACL
		caller *Caller
		want   bool
	}{
		{"world", ACL{PermRead, "world", "anyone"}, nobody, true},
		{"world without a caller", ACL{PermRead, "world", "anyone"}, nil, true},
		{"world, other permission", ACL{PermAll &^ PermRead, "world", "anyone"}, nobody, false},
		{"digest", ACL{PermRead, "digest", "a:b"}, who("digest", "a:b"), true},
		{"other digest", ACL{PermRead, "digest", "a:b"}, who("digest", "a:c"), false},
		{"digest without a caller", ACL{PermRead, "digest", "a:b"}, nil, false},
		{"second identity", ACL{PermRead, "digest", "a:b"}, who("ip", "10.0.0.1", "digest", "a:b"), true},
		{"other scheme, same id", ACL{PermRead, "digest", "a:b"}, who("x509", "a:b"), false},
		{"x509", ACL{PermRead, "x509", "CN=a"}, who("x509", "CN=a"), true},
		{"sasl", ACL{PermRead, "sasl", "a"}, who("sasl", "a"), true},
		{"address", ACL{PermRead, "ip", "10.0.0.1"}, who("ip", "10.0.0.1"), true},
		{"other address", ACL{PermRead, "ip", "10.0.0.1"}, who("ip", "10.0.0.2"), false},
		{"range", ACL{PermRead, "ip", "10.0.0.0/8"}, who("ip", "10.9.8.7"), true},
		{"range with host bits", ACL{PermRead, "ip", "10.1.2.3/8"}, who("ip", "10.9.8.7"), true},
		{"outside the range", ACL{PermRead, "ip", "10.0.0.0/8"}, who("ip", "11.0.0.1"), false},
		{"everything", ACL{PermRead, "ip", "0.0.0.0/0"}, who("ip", "11.0.0.1"), true},
		{"mapped address", ACL{PermRead, "ip", "10.0.0.0/8"}, who("ip", "::ffff:10.0.0.1"), true},
		{"long address", ACL{PermRead, "ip", "fd00::/8"}, who("ip", "fd00::1%eth0"), true},
		{"no address", ACL{PermRead, "ip", "0.0.0.0/0"}, who("ip", "somewhere"), false},
		{"super", ACL{PermRead, "digest", "a:b"}, who("super", ""), true},
		{"trusted", ACL{PermRead, "digest", "a:b"}, &Caller{Trusted: true}, true},
		{"no permissions at all", ACL{0, "world", "anyone"}, nobody, false},
	} {
		if got := Permits([]ACL{x.entry}, PermRead, x.caller); got != x.want {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
	if !Permits(nil, PermAdmin, nil) {
		t.Error("an empty list must not shut everybody out")
	}
}

// TestEveryoneIsNotLostBesideOthers is the row of ClickHouse 120265.
func TestEveryoneIsNotLostBesideOthers(t *testing.T) {
	everyone := ACL{PermRead | PermWrite, "world", "anyone"}
	others := []ACL{{PermAll, "digest", "a:b"}, {PermRead, "ip", "10.0.0.1"}}
	for at := range 3 {
		list := slices.Insert(slices.Clone(others), at, everyone)
		r := newTester(t)
		r.must(Op{Kind: OpCreate, Path: "/a", ACL: list})
		got, _, err := r.tree.ACL("/a", &Caller{Trusted: true})
		if err != nil || !slices.Equal(got, list) {
			t.Errorf("stored as %v, want %v (%v)", got, list, err)
		}
		r.must(Op{Kind: OpSet, Path: "/a", Version: 0})
		r.fails(ErrNoAuth, Op{Kind: OpSetACL, Path: "/a", Version: 0})
		r.caller = *who("digest", "a:b")
		r.must(Op{Kind: OpSetACL, Path: "/a", Version: 0})
	}
}

func TestUnusableListIsRefused(t *testing.T) {
	for name, list := range map[string][]ACL{
		"empty":                      {},
		"unknown scheme":             {{PermAll, "foo", "x"}},
		"no scheme":                  {{PermAll, "", "x"}},
		"super":                      {{PermAll, "super", ""}},
		"world with another id":      {{PermAll, "world", "bob"}},
		"digest without a colon":     {{PermAll, "digest", "bob"}},
		"digest without a hash":      {{PermAll, "digest", "bob:"}},
		"digest with two colons":     {{PermAll, "digest", "a:b:c"}},
		"address out of range":       {{PermAll, "ip", "999.1.1.1"}},
		"address with a bad prefix":  {{PermAll, "ip", "127.0.0.1/33"}},
		"no address":                 {{PermAll, "ip", ""}},
		"empty subject":              {{PermAll, "x509", ""}},
		"auth of nobody":             {{PermAll, "auth", ""}},
		"one bad among good":         {{PermAll, "world", "anyone"}, {PermAll, "foo", "x"}},
		"auth of nobody among good":  {{PermAll, "auth", ""}, {PermAll, "world", "anyone"}},
		"bad one behind a good auth": {{PermAll, "world", "anyone"}, {PermAll, "world", "bob"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTester(t)
			r.create("/a")
			r.caller = *who("ip", "10.0.0.1") // an address does not authenticate
			r.fails(ErrInvalidACL, Op{Kind: OpSetACL, Path: "/a", ACL: list, Version: AnyVersion})
			r.fails(ErrInvalidACL, Op{Kind: OpCreate, Path: "/no/parent", ACL: list})
			r.fails(ErrInvalidACL, Op{Kind: OpSetACL, Path: "/no/node", ACL: list, Version: AnyVersion})
		})
	}
}

func TestAuthBecomesWhatTheCallerHasProved(t *testing.T) {
	r := newTester(t)
	r.caller = *who("ip", "10.0.0.1", "digest", "a:b", "x509", "CN=c", "super", "")
	r.must(Op{Kind: OpCreate, Path: "/a", ACL: []ACL{{3, "auth", "ignored"}, {1, "world", "anyone"}, {3, "digest", "a:b"}, {1, "world", "anyone"}}})
	want := []ACL{{3, "digest", "a:b"}, {3, "x509", "CN=c"}, {1, "world", "anyone"}}
	if got, _, _ := r.tree.ACL("/a", &r.caller); !slices.Equal(got, want) {
		t.Errorf("stored as %v, want %v", got, want)
	}
}

func TestDigestsAreHiddenWithoutAdmin(t *testing.T) {
	r := newTester(t)
	stored := []ACL{{PermAll, "digest", "bob:secret="}, {PermRead, "world", "anyone"}, {PermAll, "ip", "10.0.0.1"}}
	r.must(Op{Kind: OpCreate, Path: "/a", ACL: stored})
	hidden := slices.Clone(stored)
	hidden[0].ID = "bob:x"
	for _, x := range []struct {
		caller *Caller
		want   []ACL
	}{{nil, hidden}, {who("digest", "eve:x"), hidden}, {who("digest", "bob:secret="), stored}, {who("super", ""), stored}} {
		if got, _, err := r.tree.ACL("/a", x.caller); err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%+v sees %v, want %v (%v)", x.caller, got, x.want, err)
		}
	}
	r.must(Op{Kind: OpCreate, Path: "/w", ACL: []ACL{{PermWrite, "world", "anyone"}}})
	if _, _, err := r.tree.ACL("/w", nil); !errors.Is(err, ErrNoAuth) {
		t.Errorf("neither READ nor ADMIN: %v", err)
	}
	r.must(Op{Kind: OpCreate, Path: "/m", ACL: []ACL{{PermAdmin, "world", "anyone"}}})
	if _, _, err := r.tree.ACL("/m", nil); err != nil {
		t.Errorf("ADMIN alone: %v", err)
	}
}

func TestReadsNeedRead(t *testing.T) {
	r := newTester(t)
	r.must(Op{Kind: OpCreate, Path: "/a", ACL: []ACL{{PermAll &^ PermRead, "world", "anyone"}}})
	if _, _, err := r.tree.Get("/a", nil); !errors.Is(err, ErrNoAuth) {
		t.Errorf("Get: %v", err)
	}
	if _, _, err := r.tree.Children("/a", nil); !errors.Is(err, ErrNoAuth) {
		t.Errorf("Children: %v", err)
	}
	if _, err := r.tree.CountDescendants("/a", nil); !errors.Is(err, ErrNoAuth) {
		t.Errorf("CountDescendants: %v", err)
	}
	if _, _, err := r.tree.Walk("/a", nil, "", 1); !errors.Is(err, ErrNoAuth) {
		t.Errorf("Walk: %v", err)
	}
	if _, ok := r.tree.Exists("/a"); !ok {
		t.Error("Exists asks for a permission")
	}
	r.fails(ErrNoAuth, Op{Kind: OpCheck, Path: "/a", Version: AnyVersion})
}

func TestListsAreKeptOnce(t *testing.T) {
	r := newTester(t)
	start := r.tree.Counts().ACLs
	private := []ACL{{PermAll, "digest", "a:b"}, {PermAll, "world", "anyone"}}
	for _, p := range []string{"/a", "/b", "/c"} {
		r.must(Op{Kind: OpCreate, Path: p, ACL: private})
	}
	if got := r.tree.Counts().ACLs - start; got != 1 {
		t.Errorf("%d lists for three equal ones", got)
	}
	for _, p := range []string{"/a", "/b", "/c"} {
		r.must(Op{Kind: OpDelete, Path: p, Version: AnyVersion})
	}
	if got := r.tree.Counts().ACLs - start; got != 0 {
		t.Errorf("%d lists are left", got)
	}
	r.check()
}
