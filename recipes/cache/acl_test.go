package cache

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/coordtest"
	"github.com/coordd/coord/znode"
)

// TestWhatMayNotBeReadIsNotInTheCopy on a real server, whatever happens to it and
// below it; when its ACL is opened it comes in.
func TestWhatMayNotBeReadIsNotInTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordtest.Start(t)
		cl, owner := c.Dial(), c.Dial(client.WithAuth("digest", []byte("owner:secret")))
		private := []client.ACL{{Perms: znode.PermAll, Scheme: "auth"}}
		open := []client.ACL{{Perms: znode.PermAll, Scheme: "world", ID: "anyone"}}
		ctx := t.Context()
		create(t, owner, "/r", "1")
		_, err := owner.Create(ctx, "/r/p", []byte("secret"), client.WithACL(private...))
		must(t, err)
		create(t, owner, "/r/p/below", "secret")
		copied := New(cl, "/r")
		running(t, copied)
		synced(t, copied)
		want := func(text string, z client.Zxid) {
			t.Helper()
			must(t, copied.WaitZxid(ctx, z))
			wantText(t, copied, text)
		}
		want("/r=1", 0)
		set(t, owner, "/r/p", "more")
		set(t, owner, "/r/p/below", "more")
		create(t, owner, "/r/p/other", "secret")
		_, err = owner.Create(ctx, "/r/late", []byte("secret"), client.WithACL(private...))
		must(t, err)
		want("/r=1 /r/a=2", create(t, owner, "/r/a", "2"))
		if n, _ := copied.Get("/r"); n.Stat.NumChildren != 3 {
			t.Fatalf("%d children are counted, want 3", n.Stat.NumChildren)
		}
		st, err := owner.SetACL(ctx, "/r/p", open, client.AnyVersion)
		must(t, err)
		want("/r=1 /r/a=2 /r/p=more /r/p/below=more /r/p/other=secret", st.Mzxid)
		_, err = owner.SetACL(ctx, "/r/p", private, client.AnyVersion)
		must(t, err)
		time.Sleep(time.Second)
		want("/r=1 /r/a=3", set(t, owner, "/r/a", "3"))
		must(t, owner.Delete(ctx, "/r/late", client.AnyVersion))
		want("/r=1 /r/a=3 /r/late=open", create(t, owner, "/r/late", "open"))
	})
}
