package fence_test

import (
	"context"
	"testing"

	"github.com/coordd/coord/fence"
)

func TestContextCarriesTheInnermostGrant(t *testing.T) {
	if _, ok := fence.FromContext(t.Context()); ok {
		t.Error("a grant out of nothing")
	}
	outer := fence.Grant{Lock: "/locks/a", Token: 33}
	inner := fence.Grant{Lock: "/locks/b", Token: 34}
	ctx := fence.NewContext(fence.NewContext(t.Context(), outer), inner)
	if g, ok := fence.FromContext(ctx); !ok || g != inner {
		t.Errorf("innermost: %v, %v", g, ok)
	}
	for _, want := range []fence.Grant{outer, inner} {
		if g, ok := fence.FromContextFor(ctx, want.Lock); !ok || g != want {
			t.Errorf("%s: %v, %v", want.Lock, g, ok)
		}
	}
	if g, ok := fence.FromContextFor(ctx, "/locks/c"); ok {
		t.Errorf("a lock that is not held: %v", g)
	}
}

// Of two acquisitions of one lock the newer counts.
func TestNewerGrantOfOneLockHidesTheOlder(t *testing.T) {
	ctx := context.Background()
	for token := fence.Token(1); token <= 3; token++ {
		ctx = fence.NewContext(ctx, fence.Grant{Lock: "/l", Token: token})
	}
	if g, ok := fence.FromContextFor(ctx, "/l"); !ok || g.Token != 3 {
		t.Errorf("%v, %v", g, ok)
	}
}
