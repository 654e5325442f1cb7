package cache

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// running starts Run and ends it with the test.
func running(t *testing.T, c *Cache) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() { errs <- c.Run(ctx) }()
	var got error
	var stopped bool
	stop = func() error {
		cancel()
		if !stopped {
			stopped, got = true, <-errs
		}
		return got
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func synced(t *testing.T, c *Cache) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, c.WaitSynced(ctx))
}

func create(t *testing.T, cl *client.Client, path, data string) client.Zxid {
	t.Helper()
	made, err := cl.Create(t.Context(), path, []byte(data))
	must(t, err)
	return made.Stat.Czxid
}

func set(t *testing.T, cl *client.Client, path, data string) client.Zxid {
	t.Helper()
	st, err := cl.Set(t.Context(), path, []byte(data), client.AnyVersion)
	must(t, err)
	return st.Mzxid
}

// text is a state in words.
func text(nodes []client.Node) string {
	var b strings.Builder
	for _, n := range nodes {
		b.WriteString(n.Path + "=" + string(n.Data) + " ")
	}
	return strings.TrimSpace(b.String())
}

func wantText(t *testing.T, c *Cache, want string) {
	t.Helper()
	synctest.Wait()
	if have := text(c.All("")); have != want {
		t.Fatalf("the copy is %q, want %q", have, want)
	}
	var bytes int64
	for _, n := range c.All("") {
		bytes += sizeOf(n)
	}
	if c.Bytes() != bytes || c.Len() != len(c.All("")) {
		t.Fatalf("%d bytes counted, %d are there", c.Bytes(), bytes)
	}
}

func TestCopyFollowsTheSubtree(t *testing.T) {
	fake(t, 2, func(t *testing.T, fc *fakecoord.Cluster) {
		cl, other := connect(t, fc), connect(t, fc)
		create(t, other, "/a", "1")
		create(t, other, "/a/b", "2")
		create(t, other, "/ab", "not below /a")
		c := New(cl, "/a")
		if c.Stale() != Forever || c.Zxid() != 0 || c.Root() != "/a" {
			t.Fatal(c.Stale(), c.Zxid())
		}
		running(t, c)
		synced(t, c)
		wantText(t, c, "/a=1 /a/b=2")
		create(t, other, "/a/b/c", "3")
		create(t, other, "/a/x", "")
		set(t, other, "/a/b", "22")
		wantText(t, c, "/a=1 /a/b=22 /a/b/c=3 /a/x=")
		if names := c.Children("/a"); !slices.Equal(names, []string{"b", "x"}) {
			t.Fatal(names)
		}
		n, ok := c.Get("/a/b")
		if !ok || n.Stat.Version != 1 || n.Stat.NumChildren != 1 || n.Zxid != c.Zxid() {
			t.Fatalf("%+v %v", n, ok)
		}
		if text := text(c.All("/a/b")); text != "/a/b=22 /a/b/c=3" {
			t.Fatal(text)
		}
		must(t, other.Delete(t.Context(), "/a/b/c", client.AnyVersion))
		z := set(t, other, "/a/x", "9")
		wantText(t, c, "/a=1 /a/b=22 /a/x=9")
		if c.Zxid() != z || c.Stale() != 0 {
			t.Fatal(c.Zxid(), z, c.Stale())
		}
		if _, ok := c.Get("/a/b/c"); ok || len(c.Children("/a/b")) != 0 {
			t.Fatal("a deleted node is shown")
		}
	})
}

// TestRootComesAndGoes: a root that is not there is an empty copy.
func TestRootComesAndGoes(t *testing.T) {
	fake(t, 1, func(t *testing.T, fc *fakecoord.Cluster) {
		cl := connect(t, fc)
		c := New(cl, "/a")
		running(t, c)
		synced(t, c)
		wantText(t, c, "")
		for range 2 {
			create(t, cl, "/a", "1")
			create(t, cl, "/a/b", "2")
			wantText(t, c, "/a=1 /a/b=2")
			must(t, cl.Delete(t.Context(), "/a/b", client.AnyVersion))
			must(t, cl.Delete(t.Context(), "/a", client.AnyVersion))
			wantText(t, c, "")
		}
		whole := New(cl, "/")
		running(t, whole)
		synced(t, whole)
		create(t, cl, "/z", "1")
		wantText(t, whole, "/= /z=1")
		if names := whole.Children("/"); !slices.Equal(names, []string{"z"}) {
			t.Fatal(names)
		}
	})
}

// TestTransactionsAreSeenWhole: two nodes that are set in one transaction are
// never seen to differ.
func TestTransactionsAreSeenWhole(t *testing.T) {
	fake(t, 1, func(t *testing.T, fc *fakecoord.Cluster) {
		cl := connect(t, fc)
		create(t, cl, "/a", "0")
		_, err := cl.Txn(t.Context(), client.OpCreate("/a/1", nil), client.OpCreate("/a/2", nil))
		must(t, err)
		c := New(cl, "/a")
		running(t, c)
		synced(t, c)
		for range 200 {
			d := []byte(time.Now().String() + strings.Repeat("x", int(c.Zxid()%7)))
			_, err := cl.Txn(t.Context(), client.OpSet("/a/1", d, client.AnyVersion), client.OpSet("/a/2", d, client.AnyVersion))
			must(t, err)
			nodes := c.All("")
			if string(nodes[1].Data) != string(nodes[2].Data) || nodes[1].Stat.Mzxid != nodes[2].Stat.Mzxid {
				t.Fatalf("half of a transaction: %s", text(nodes))
			}
		}
	})
}

// TestChangesAreReportedInOrder also for the first reading and after the servers
// have forgotten.
func TestChangesAreReportedInOrder(t *testing.T) {
	fake(t, 2, func(t *testing.T, fc *fakecoord.Cluster) {
		cl, other := connect(t, fc, client.WithSessionTimeout(time.Minute)), connect(t, fc)
		for _, p := range []string{"/a", "/a/b", "/a/b/c", "/a/d"} {
			create(t, other, p, "1")
		}
		set(t, other, "/a/b", "2") // parents are still reported first
		var got []string
		var c *Cache
		c = New(cl, "/a", OnChange(func(ch Change) {
			mark := ""
			if ch.Reread {
				mark = "*"
			}
			got = append(got, ch.Type.String()+mark+" "+ch.Node.Path+"="+string(ch.Node.Data))
			if n, ok := c.Get(ch.Node.Path); ch.Type != client.EventDeleted && (!ok || string(n.Data) != string(ch.Node.Data)) {
				t.Errorf("%s is reported and not shown", ch.Node.Path)
			}
		}))
		want := func(lines ...string) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(got, lines) {
				t.Fatalf("%q, want %q", got, lines)
			}
			got = nil
		}
		running(t, c)
		synced(t, c)
		want("created* /a=1", "created* /a/b=2", "created* /a/b/c=1", "created* /a/d=1")
		set(t, other, "/a/d", "3")
		must(t, other.Delete(t.Context(), "/a/d", client.AnyVersion))
		want("changed /a/d=3", "deleted /a/d=3")

		server := fc.Server(fc.Connected(uint64(cl.Session().ID())))
		server.Mute()
		must(t, other.Delete(t.Context(), "/a/b/c", client.AnyVersion))
		must(t, other.Delete(t.Context(), "/a/b", client.AnyVersion))
		create(t, other, "/a/z", "1")
		set(t, other, "/a", "5")
		create(t, other, "/a/b", "9")
		synctest.Wait()
		if text := text(c.All("")); text != "/a=1 /a/b=2 /a/b/c=1" {
			t.Fatal(text)
		}
		before := c.Zxid()
		fc.Forget()
		server.CutAll()
		server.Unmute()
		time.Sleep(10 * time.Second)
		want("deleted* /a/b/c=1", "deleted* /a/b=2", "created* /a/z=1", "changed* /a=5", "created* /a/b=9")
		wantText(t, c, "/a=5 /a/b=9 /a/z=1")
		if c.Zxid() <= before {
			t.Fatal("the position did not move")
		}
	})
}

// TestRunAgainResumes: nothing is read anew, and what happened is reported.
func TestRunAgainResumes(t *testing.T) {
	fake(t, 1, func(t *testing.T, fc *fakecoord.Cluster) {
		cl := connect(t, fc)
		create(t, cl, "/a", "1")
		changes := 0
		c := New(cl, "/a", OnChange(func(Change) { changes++ }))
		stop := running(t, c)
		synced(t, c)
		if err := c.Run(t.Context()); !errors.Is(err, ErrRunning) {
			t.Fatal(err)
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		z := create(t, cl, "/a/b", "2")
		time.Sleep(time.Minute)
		if age := c.Stale(); age < time.Minute || age > 61*time.Second {
			t.Fatal(age)
		}
		wantText(t, c, "/a=1")
		reads := fc.Counts().Reads
		stop = running(t, c)
		must(t, c.WaitZxid(t.Context(), z))
		wantText(t, c, "/a=1 /a/b=2")
		if fc.Counts().Reads != reads || changes != 2 || c.Stale() != 0 {
			t.Fatalf("%d reads, %d changes", fc.Counts().Reads-reads, changes)
		}
		must(t, cl.Delete(t.Context(), "/a/b", client.AnyVersion))
		wantText(t, c, "/a=1")
		_ = stop()
		z = create(t, cl, "/a/c", "3")
		fc.Forget()
		running(t, c)
		must(t, c.WaitZxid(t.Context(), z))
		wantText(t, c, "/a=1 /a/c=3")
	})
}

// TestWaitZxidShowsYourWrite over cuts, and for transactions elsewhere.
func TestWaitZxidShowsYourWrite(t *testing.T) {
	fake(t, 2, func(t *testing.T, fc *fakecoord.Cluster) {
		cl, other := connect(t, fc, client.WithSessionTimeout(time.Minute)), connect(t, fc)
		create(t, other, "/a", "")
		c := New(cl, "/a")
		running(t, c)
		for i := range 50 {
			if i%5 == 0 {
				fc.Server("n1").CutAll()
				fc.Server("n2").CutAll()
			}
			want := strings.Repeat("x", i)
			must(t, c.WaitZxid(t.Context(), set(t, other, "/a", want)))
			if n, _ := c.Get("/a"); string(n.Data) != want {
				t.Fatalf("wrote %q, read %q", want, n.Data)
			}
		}
		// A transaction elsewhere: no event tells of it.
		z := create(t, other, "/elsewhere", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, c.WaitZxid(ctx, z))
		if c.Zxid() < z {
			t.Fatal(c.Zxid(), z)
		}
		// One that has not happened yet.
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := New(cl, "/a").WaitZxid(short, z); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}

func TestStaleWhileDisconnected(t *testing.T) {
	fake(t, 1, func(t *testing.T, fc *fakecoord.Cluster) {
		cl := connect(t, fc, client.WithSessionTimeout(time.Minute))
		c := New(cl, "/a")
		stop := running(t, c)
		synced(t, c)
		time.Sleep(time.Minute)
		if c.Stale() != 0 {
			t.Fatal(c.Stale())
		}
		fc.Server("n1").Stop()
		time.Sleep(20 * time.Second)
		if age := c.Stale(); age < 19*time.Second || age > 45*time.Second {
			t.Fatal(age)
		}
		fc.Server("n1").Start()
		time.Sleep(5 * time.Second)
		if c.Stale() != 0 {
			t.Fatal(c.Stale())
		}
		fc.Expire(uint64(cl.Session().ID()))
		synctest.Wait()
		time.Sleep(time.Hour)
		if err := stop(); !errors.Is(err, client.ErrSessionExpired) {
			t.Fatal(err)
		}
		if age := c.Stale(); age < time.Hour || age > time.Hour+10*time.Second {
			t.Fatal(age)
		}
	})
}

func TestFilterAndWithoutData(t *testing.T) {
	fake(t, 1, func(t *testing.T, fc *fakecoord.Cluster) {
		cl := connect(t, fc)
		for _, p := range []string{"/a", "/a/keep", "/a/tmp", "/a/tmp/keep"} {
			create(t, cl, p, "1")
		}
		var seen []string
		c := New(cl, "/a", WithoutData(), OnChange(func(ch Change) { seen = append(seen, ch.Node.Path) }),
			Filter(func(p string) bool { return strings.HasSuffix(p, "keep") }))
		running(t, c)
		synced(t, c)
		wantText(t, c, "/a/keep= /a/tmp/keep=")
		z := set(t, cl, "/a/tmp", "2")
		set(t, cl, "/a/keep", "2")
		create(t, cl, "/a/tmp/x", "2")
		must(t, cl.Delete(t.Context(), "/a/tmp/keep", client.AnyVersion))
		wantText(t, c, "/a/keep=")
		if !slices.Equal(seen, []string{"/a/keep", "/a/tmp/keep", "/a/keep", "/a/tmp/keep"}) || c.Zxid() < z {
			t.Fatal(seen)
		}
	})
}

func TestLimitEndsRunWithATypedError(t *testing.T) {
	fake(t, 1, func(t *testing.T, fc *fakecoord.Cluster) {
		cl := connect(t, fc)
		create(t, cl, "/a", "")
		c := New(cl, "/a", MaxBytes(2000))
		errs := make(chan error, 1)
		go func() { errs <- c.Run(t.Context()) }()
		synced(t, c)
		create(t, cl, "/a/b", strings.Repeat("x", 500))
		wantText(t, c, "/a= /a/b="+strings.Repeat("x", 500))
		create(t, cl, "/a/c", strings.Repeat("x", 1000))
		err := <-errs
		var e *SizeError
		if !errors.Is(err, ErrTooLarge) || !errors.As(err, &e) || e.Most != 2000 || e.Bytes <= 2000 {
			t.Fatal(err)
		}
		if c.Stale() == 0 {
			t.Fatal("it says that it follows")
		}
		if err := New(cl, "/a", MaxBytes(2000)).Run(t.Context()); !errors.Is(err, ErrTooLarge) {
			t.Fatal(err)
		}
	})
}

func TestNullAndEmptyDataDiffer(t *testing.T) {
	fake(t, 1, func(t *testing.T, fc *fakecoord.Cluster) {
		cl := connect(t, fc)
		_, err := cl.Create(t.Context(), "/a", nil)
		must(t, err)
		c := New(cl, "/a")
		running(t, c)
		synced(t, c)
		_, err = cl.Create(t.Context(), "/a/null", nil, client.WithEphemeral())
		must(t, err)
		_, err = cl.Create(t.Context(), "/a/empty", []byte{}, client.WithSequential())
		must(t, err)
		synctest.Wait()
		for _, n := range c.All("") {
			if (n.Data == nil) == strings.HasPrefix(n.Path, "/a/empty") {
				t.Fatalf("%s holds %v", n.Path, n.Data)
			}
		}
	})
}

func TestBadPathIsRefused(t *testing.T) {
	fake(t, 1, func(t *testing.T, fc *fakecoord.Cluster) {
		if err := New(connect(t, fc), "no-slash").Run(t.Context()); !errors.Is(err, client.ErrBadPath) {
			t.Fatal(err)
		}
	})
}
