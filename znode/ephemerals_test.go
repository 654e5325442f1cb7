package znode

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/coordd/coord/session"
)

func TestEphemeralsOfASessionAreFoundByPath(t *testing.T) {
	r := newTester(t)
	r.create("/p")
	r.create("/pq")
	r.must(Op{Kind: OpCreate, Path: "/closed", ACL: []ACL{{PermCreate, "world", "anyone"}, {PermAll, "digest", "ann:x"}}})
	for _, p := range []string{"/pq/x", "/p/b", "/p/a", "/p-", "/closed/c"} {
		r.bid(p, 0, 0)
	}
	for _, c := range []struct {
		of   session.ID
		path string
		by   *Caller
		want []string
	}{
		{1, "/", &Caller{}, []string{"/p-", "/p/a", "/p/b", "/pq/x"}},
		{1, "/", &Caller{Trusted: true}, []string{"/closed/c", "/p-", "/p/a", "/p/b", "/pq/x"}},
		{1, "/", &Caller{Identities: []Identity{{Scheme: "digest", ID: "ann:x"}}}, []string{"/closed/c", "/p-", "/p/a", "/p/b", "/pq/x"}},
		{1, "/p", &Caller{}, []string{"/p/a", "/p/b"}},
		{1, "/p/a", &Caller{}, []string{"/p/a"}},
		{1, "/closed", &Caller{}, []string{}},
		{1, "/none", &Caller{}, []string{}},
		{2, "/", &Caller{Trusted: true}, []string{}},
	} {
		got, more := r.tree.EphemeralsOf(c.of, c.path, "", 0, c.by)
		if got == nil || more || !slices.Equal(got, c.want) {
			t.Errorf("of %d at %s: %#v, more %v, want %v", c.of, c.path, got, more, c.want)
		}
	}
}

// TestPagesOfEphemeralsMakeTheList, whatever the size of a page.
func TestPagesOfEphemeralsMakeTheList(t *testing.T) {
	r := newTester(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	var want []string
	for _, k := range rnd.Perm(300) {
		p := fmt.Sprintf("/%03d", k)
		r.bid(p, 0, 0)
		want = append(want, p)
	}
	slices.Sort(want)
	for _, limit := range []int{1, 2, 7, 100, 149, 150, 299, 300, 301, 0} {
		var got []string
		for after, more := "", true; more; {
			var page []string
			page, more = r.tree.EphemeralsOf(1, "/", after, limit, &Caller{})
			if more && len(page) != limit {
				t.Fatalf("a page of %d with limit %d", len(page), limit)
			}
			if got = append(got, page...); more {
				after = page[len(page)-1]
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %d paths, or in another order", limit, len(got))
		}
	}
}
