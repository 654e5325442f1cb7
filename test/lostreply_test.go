package test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
)

// A lostWrite is a write whose answer gets lost after it was applied.
type lostWrite struct {
	name string
	// prepare makes what the write needs below dir.
	prepare func(ctx context.Context, c *client.Client, dir string) error
	// write does it, through the client whose answers get lost.
	write func(ctx context.Context, c *client.Client, dir string) error
	// applied says, seen from elsewhere, how often it was done.
	applied func(ctx context.Context, c *client.Client, dir string) (int64, error)
}

func childCount(suffix string) func(context.Context, *client.Client, string) (int64, error) {
	return func(ctx context.Context, c *client.Client, dir string) (int64, error) {
		names, err := c.Children(ctx, dir+suffix)
		return int64(len(names)), err
	}
}

func makeNode(suffix string) func(context.Context, *client.Client, string) error {
	return func(ctx context.Context, c *client.Client, dir string) error {
		_, err := c.Create(ctx, dir+suffix, []byte("before"))
		return err
	}
}

var lostWrites = []lostWrite{
	{
		name:    "create sequential ephemeral",
		prepare: makeNode("/q"),
		write: func(ctx context.Context, c *client.Client, dir string) error {
			made, err := c.Create(ctx, dir+"/q/n-", nil, client.WithSequential(), client.WithEphemeral())
			if err == nil && made.Path != dir+"/q/n-0000000000" {
				err = fmt.Errorf("the answer is for %s", made.Path)
			}
			return err
		},
		applied: childCount("/q"),
	},
	{
		name:    "set",
		prepare: makeNode("/n"),
		write: func(ctx context.Context, c *client.Client, dir string) error {
			st, err := c.Set(ctx, dir+"/n", []byte("after"), client.AnyVersion)
			if err == nil && st.Version != 1 {
				err = fmt.Errorf("the answer has version %d", st.Version)
			}
			return err
		},
		applied: func(ctx context.Context, c *client.Client, dir string) (int64, error) {
			st, _, err := c.Exists(ctx, dir+"/n")
			return st.Version, err
		},
	},
	{
		name:    "delete",
		prepare: makeNode("/n"),
		write: func(ctx context.Context, c *client.Client, dir string) error {
			return c.Delete(ctx, dir+"/n", 0)
		},
		applied: func(ctx context.Context, c *client.Client, dir string) (int64, error) {
			_, there, err := c.Exists(ctx, dir+"/n")
			if there {
				return 0, err
			}
			return 1, err
		},
	},
	{
		name:    "set ACL",
		prepare: makeNode("/n"),
		write: func(ctx context.Context, c *client.Client, dir string) error {
			st, err := c.SetACL(ctx, dir+"/n", []client.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}, client.AnyVersion)
			if err == nil && st.Aversion != 1 {
				err = fmt.Errorf("the answer has version %d", st.Aversion)
			}
			return err
		},
		applied: func(ctx context.Context, c *client.Client, dir string) (int64, error) {
			st, _, err := c.Exists(ctx, dir+"/n")
			return st.Aversion, err
		},
	},
	{
		name:    "transaction",
		prepare: makeNode("/n"),
		write: func(ctx context.Context, c *client.Client, dir string) error {
			_, err := c.Txn(ctx, client.OpCheck(dir+"/n", 0), client.OpSet(dir+"/n", nil, 0), client.OpCreate(dir+"/m", nil))
			return err
		},
		applied: func(ctx context.Context, c *client.Client, dir string) (int64, error) {
			st, _, err := c.Exists(ctx, dir+"/n")
			return st.Version, err
		},
	},
	{
		name:    "refused create",
		prepare: makeNode("/n"),
		write: func(ctx context.Context, c *client.Client, dir string) error {
			// Its success shows elsewhere only through the write behind it.
			refused := make(chan error, 1)
			if err := c.WriteAsync(func(_ []client.OpResult, err error) { refused <- err }, client.OpCreate(dir+"/n", nil)); err != nil {
				return err
			}
			if _, err := c.Set(ctx, dir+"/n", nil, 0); err != nil {
				return err
			}
			if err := <-refused; !errors.Is(err, client.ErrNodeExists) {
				return fmt.Errorf("the create was answered otherwise: %w", err)
			}
			return nil
		},
		applied: func(ctx context.Context, c *client.Client, dir string) (int64, error) {
			st, _, err := c.Exists(ctx, dir+"/n")
			return st.Version, err
		},
	},
}

// A loss says what happens between the loss of the answer and the client's
// next try.
type loss struct {
	name string
	act  func(c *processes, px []*proxy)
}

var losses = []loss{
	{"same server", func(*processes, []*proxy) {}},
	{"another server", func(_ *processes, px []*proxy) { px[0].refuse.Store(true) }},
	{"leader change", func(c *processes, _ []*proxy) {
		lead := c.leader()
		lead.kill()
		lead.start()
		c.waitReady(30 * time.Second)
	}},
	{"snapshot and restart of all", func(c *processes, _ []*proxy) {
		for _, p := range c.nodes {
			p.snapshot()
		}
		for _, p := range c.nodes {
			p.kill()
		}
		for _, p := range c.nodes {
			p.start()
		}
		c.waitReady(30 * time.Second)
	}},
}

// snapshot makes the server write one now.
func (p *process) snapshot() {
	p.c.t.Helper()
	conn, err := grpc.NewClient(p.grpc(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		p.c.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	reply, err := coordpb.NewAdminClient(conn).Snapshot(ctx, &coordpb.SnapshotRequest{})
	if err != nil || reply.Error != nil {
		p.c.t.Fatalf("snapshot of %s: %v, %v", p.name, err, reply.GetError())
	}
}

func TestLostReplyIsAnsweredAgainAndAppliedOnce(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	watcher := dial(t, c.endpoints())
	for i, l := range losses {
		t.Run(l.name, func(t *testing.T) {
			loseReplies(t, c, watcher, fmt.Sprintf("/loss-%d", i), l)
		})
	}
	c.sameDigests()
}

// dial opens a session over the servers.
func dial(t testing.TB, endpoints []string, opts ...client.Option) *client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	opts = append([]client.Option{client.WithSessionTimeout(60 * time.Second)}, opts...)
	c, err := client.Dial(ctx, strings.Join(endpoints, ","), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// loseReplies has one client for each kind of write, loses all their answers
// at once, and lets them try again after the loss.
func loseReplies(t *testing.T, c *processes, watcher *client.Client, root string, l loss) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	px, addresses := proxies(t, c.endpoints())
	if _, err := watcher.Create(ctx, root, nil); err != nil {
		t.Fatal(err)
	}
	answers := make(chan error, len(lostWrites))
	var clients []*client.Client
	for i, w := range lostWrites {
		dir := fmt.Sprintf("%s/%d", root, i)
		if _, err := watcher.Create(ctx, dir, nil); err != nil {
			t.Fatal(err)
		}
		if err := w.prepare(ctx, watcher, dir); err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
	}
	// All clients are at one server, so that there is another one to go to.
	for _, p := range px[1:] {
		p.refuse.Store(true)
	}
	for range lostWrites {
		clients = append(clients, dial(t, addresses))
	}
	for _, p := range px[1:] {
		p.refuse.Store(false)
	}
	for _, p := range px {
		p.mute.Store(true)
	}
	for i, w := range lostWrites {
		go func() {
			err := w.write(ctx, clients[i], fmt.Sprintf("%s/%d", root, i))
			if err != nil {
				err = fmt.Errorf("%s: %w", w.name, err)
			}
			answers <- err
		}()
	}
	for i, w := range lostWrites {
		poll(t, 20*time.Second, w.name, func() error { return appliedOnce(ctx, watcher, w, fmt.Sprintf("%s/%d", root, i)) })
	}
	select {
	case err := <-answers:
		t.Fatalf("a write was answered although the answer was lost: %v", err)
	default:
	}
	l.act(c, px)
	for _, p := range px {
		p.mute.Store(false)
		p.cut()
	}
	for range lostWrites {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	for i, w := range lostWrites {
		if err := appliedOnce(ctx, watcher, w, fmt.Sprintf("%s/%d", root, i)); err != nil {
			t.Errorf("%s: %v", w.name, err)
		}
	}
}

func appliedOnce(ctx context.Context, c *client.Client, w lostWrite, dir string) error {
	n, err := w.applied(ctx, c, dir)
	if err == nil && n != 1 {
		err = fmt.Errorf("applied %d times", n)
	}
	return err
}

func TestLostReplyToOpenGivesTheSameSession(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	px, addresses := proxies(t, c.endpoints())
	before := sessionCount(t, c)
	for _, p := range px {
		p.mute.Store(true)
	}
	opened := make(chan *client.Client, 1)
	go func() { opened <- dial(t, addresses, client.WithIdentity("worker-1")) }()
	poll(t, 20*time.Second, "the session", func() error {
		if n := sessionCount(t, c); n != before+1 {
			return fmt.Errorf("%d new sessions", n-before)
		}
		return nil
	})
	for _, p := range px {
		p.mute.Store(false)
		p.cut()
	}
	cl := <-opened
	if n := sessionCount(t, c); n != before+1 {
		t.Errorf("%d new sessions, want one", n-before)
	}
	if _, err := cl.Create(context.Background(), "/e", nil, client.WithEphemeral()); err != nil {
		t.Errorf("the session cannot be used: %v", err)
	}
}

func sessionCount(t testing.TB, c *processes) int64 {
	t.Helper()
	st, err := c.nodes[0].status()
	if err != nil {
		t.Fatal(err)
	}
	return st.Sessions
}

func TestLostReplyToARequestWithAnIdIsAnsweredAgain(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	px, addresses := proxies(t, c.endpoints())
	watcher := dial(t, c.endpoints())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := watcher.Create(ctx, "/n", nil); err != nil {
		t.Fatal(err)
	}
	cl := dial(t, addresses, client.WithoutSession())
	for _, p := range px {
		p.mute.Store(true)
	}
	answer := make(chan error, 1)
	go func() {
		st, err := cl.Set(client.WithRequestID(ctx, "order-41"), "/n", []byte("x"), client.AnyVersion)
		if err == nil && st.Version != 1 {
			err = fmt.Errorf("the answer has version %d", st.Version)
		}
		answer <- err
	}()
	poll(t, 20*time.Second, "the write", func() error { return version(ctx, watcher, "/n", 1) })
	for _, p := range px {
		p.mute.Store(false)
		p.cut()
	}
	if err := <-answer; err != nil {
		t.Error(err)
	}
	if err := version(ctx, watcher, "/n", 1); err != nil {
		t.Error(err)
	}
}

func version(ctx context.Context, c *client.Client, path string, want int64) error {
	st, _, err := c.Exists(ctx, path)
	if err == nil && st.Version != want {
		err = fmt.Errorf("%s has version %d, not %d", path, st.Version, want)
	}
	return err
}
