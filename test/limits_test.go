package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
)

// limited is one server with limits, and a client of it.
type limited struct {
	*processes
	c *client.Client
}

func startLimited(t *testing.T, limits string) *limited {
	t.Helper()
	skipIfShort(t)
	l := &limited{processes: startProcesses(t, 1, "limits: {"+limits+"}\n")}
	l.c = dial(t, l.endpoints())
	return l
}

// refused fails the test unless err is the refusal of that limit, in the
// configuration's own words.
func (l *limited) refused(what string, err error, kind error, setting string) {
	l.t.Helper()
	var e *client.Error
	if !errors.As(err, &e) || !errors.Is(err, kind) || e.Limit != setting || e.Outcome != client.NotDone {
		l.t.Errorf("%s: %v (%+v), want %v by %s", what, err, e, kind, setting)
		return
	}
	if e.Detail == "" || !strings.Contains(err.Error(), setting) {
		l.t.Errorf("%s: %q does not say how to raise the limit", what, err)
	}
	l.isSetting(setting)
}

// isSetting fails the test if the configuration has no such setting.
func (l *limited) isSetting(name string) {
	l.t.Helper()
	out, err := exec.Command(program(l.t, "coordd"), "config", "show", l.conf).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n"+name+" ") {
		l.t.Errorf("no setting is called %s (%v)", name, err)
	}
}

// TestSizesAreBounded: what is too large is refused by the name of its limit,
// alone and within a transaction, and the session goes on where it was.
func TestSizesAreBounded(t *testing.T) {
	l := startLimited(t, "node_size: 50000, path_size: 100, ops_per_transaction: 5, frame_size: 64KiB, children_per_reply: 10")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := l.c.Create(ctx, "/n", nil); err != nil {
		t.Fatal(err)
	}
	large, long := make([]byte, 50_001), "/"+strings.Repeat("x", 100)
	setN := client.OpSet("/n", nil, client.AnyVersion)
	txn := func(ops ...client.Op) error { _, err := l.c.Txn(ctx, ops...); return err }
	version := client.Version(0)
	for _, tc := range []struct {
		what    string
		do      func() error
		kind    error
		setting string
	}{
		{"data", func() error { _, err := l.c.Set(ctx, "/n", large, client.AnyVersion); return err }, client.ErrTooLarge, "limits.node_size"},
		{"data of a new node", func() error { _, err := l.c.Create(ctx, "/m", large); return err }, client.ErrTooLarge, "limits.node_size"},
		{"data in a transaction", func() error { return txn(setN, client.OpSet("/n", large, client.AnyVersion)) }, client.ErrTooLarge, "limits.node_size"},
		{"path", func() error { _, err := l.c.Create(ctx, long, nil); return err }, client.ErrTooLarge, "limits.path_size"},
		{"path to read", func() error { _, err := l.c.Get(ctx, long); return err }, client.ErrTooLarge, "limits.path_size"},
		{"path in a transaction", func() error { return txn(setN, client.OpDelete(long, client.AnyVersion)) }, client.ErrTooLarge, "limits.path_size"},
		{"operations", func() error { return txn(setN, setN, setN, setN, setN, setN) }, client.ErrLimit, "limits.ops_per_transaction"},
		{"message", func() error { return txn(client.OpSet("/n", large[1:], 0), client.OpSet("/n", large[1:], 1)) }, client.ErrTooLarge, "limits.frame_size"},
	} {
		l.refused(tc.what, tc.do(), tc.kind, tc.setting)
		version++
		if st, err := l.c.Set(ctx, "/n", nil, version-1); err != nil || st.Version != version {
			t.Errorf("the next write: version %d, %v; want %d", st.Version, err, version)
		}
	}
	if _, err := l.c.Set(ctx, "/n", large[1:], client.AnyVersion); err != nil {
		t.Errorf("the largest data: %v", err)
	}
	if _, err := l.c.Create(ctx, long[:100], nil); err != nil {
		t.Errorf("the longest path: %v", err)
	}
	if err := txn(setN, setN, setN, setN, setN); err != nil {
		t.Errorf("the longest transaction: %v", err)
	}
	for range 5 {
		child := client.OpCreate("/n/c-", nil, client.WithSequential())
		if err := txn(child, child, child, child, child); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := l.c.Children(ctx, "/n"); err != nil || len(names) != 25 {
		t.Errorf("25 children, ten in a reply: %d, %v", len(names), err)
	}
	l.hugeMessage()
}

// hugeMessage sends one that no client of ours would. Its stream ends; the
// session is attached again and lives.
func (l *limited) hugeMessage() {
	l.t.Helper()
	conn := connect(l.t, l.nodes[0].grpc(), insecure.NewCredentials())
	s := greet(l.t, conn, rawHello())
	op := &coordpb.Op{Kind: coordpb.Op_KIND_SET, Path: "/n", Version: -1, Data: make([]byte, 1<<20)}
	s.send(&coordpb.SessionRequest{Requests: []*coordpb.Request{{Seq: 1, Write: &coordpb.Write{Ops: []*coordpb.Op{op}}}}})
	if _, err := s.stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		l.t.Errorf("a message of 1 MiB: %v", err)
	}
	again := greet(l.t, conn, s.attachHello(2))
	if again.welcome.GetNextSeq() != 1 {
		l.t.Fatalf("afterwards: %v", again.welcome)
	}
	again.lives("after a message of 1 MiB")
	beside := greet(l.t, conn, rawHello()) // on the same connection
	beside.lives("beside it")
}

// TestWatchesAreBounded: one watch too many is refused; the others go on, and the
// place of one that ends is free.
func TestWatchesAreBounded(t *testing.T) {
	l := startLimited(t, "watches_per_session: 3")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := l.c.Create(ctx, "/w", nil); err != nil {
		t.Fatal(err)
	}
	events := make(chan client.Event, 100)
	var watching sync.WaitGroup
	defer watching.Wait()
	watch := func(ctx context.Context) {
		begun := make(chan struct{})
		watching.Go(func() {
			for e, err := range l.c.Watch(ctx, "/w", client.Initial(client.Linearizable)) {
				switch {
				case err != nil && ctx.Err() == nil:
					t.Error(err)
				case err == nil && e.Type == client.EventPresent:
					close(begun)
				case err == nil:
					events <- e
				}
			}
		})
		<-begun
	}
	short, end := context.WithCancel(ctx)
	life, endAll := context.WithCancel(ctx)
	defer endAll()
	watch(short)
	watch(life)
	watch(life)
	one := func() error {
		for _, err := range l.c.Watch(ctx, "/w", client.Initial(client.Linearizable)) {
			return err
		}
		return errors.New("it ended without a word")
	}
	l.refused("a fourth watch", one(), client.ErrLimit, "limits.watches_per_session")
	if _, err := l.c.Set(ctx, "/w", nil, client.AnyVersion); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if e := <-events; e.Type != client.EventChanged {
			t.Errorf("event %v", e)
		}
	}
	end()
	poll(t, 10*time.Second, "the place of a watch that has ended", one)
}

// TestSessionsAreBounded counts sessions of the cluster, and of one address.
func TestSessionsAreBounded(t *testing.T) {
	skipIfShort(t)
	for setting, tc := range map[string]struct {
		limits string
		others bool // clients of another address are let in
	}{
		"limits.sessions":             {"sessions: 2", false},
		"limits.sessions_per_address": {"sessions_per_address: 2", true},
	} {
		l := startLimited(t, tc.limits)
		second := dial(t, l.endpoints())
		open := func(opts ...client.Option) (*client.Client, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			return client.Dial(ctx, l.target(), opts...)
		}
		_, err := open()
		l.refused("a third session", err, client.ErrLimit, setting)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: the client tried until its time was over", setting)
		}
		other, err := open(from("127.0.0.9"))
		if (err == nil) != tc.others {
			t.Errorf("%s: from another address: %v", setting, err)
		}
		if err == nil {
			other.Close()
		}
		if _, err := l.c.Create(t.Context(), "/still-there", nil, client.WithEphemeral()); err != nil {
			t.Errorf("%s: the first session: %v", setting, err)
		}
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
		third, err := open()
		if err != nil {
			t.Fatalf("%s: after one was closed: %v", setting, err)
		}
		third.Close()
	}
}

// TestConnectionsAreBounded: what is too much is closed at once, the places that
// are taken stay, and are free again when their connections end.
func TestConnectionsAreBounded(t *testing.T) {
	skipIfShort(t)
	for setting, tc := range map[string]struct {
		limits string
		others bool
	}{
		"limits.connections":             {"connections: 10", false},
		"limits.connections_per_address": {"connections_per_address: 10", true},
	} {
		l := startLimited(t, tc.limits)
		l.isSetting(setting)
		var conns []net.Conn
		for range 20 {
			c, err := net.Dial("tcp", l.nodes[0].grpc())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			conns = append(conns, c)
		}
		poll(t, 10*time.Second, "a refusal in the metrics", func() error {
			if n, err := l.metric("coord_connections_refused_total"); err != nil || n < 10 {
				return fmt.Errorf("%g refused, %w", n, err)
			}
			return nil
		})
		if n, err := l.metric("coord_connections"); err != nil || n > 10 {
			t.Errorf("%s: %g connections, %v", setting, n, err)
		}
		if _, err := l.c.Create(t.Context(), "/still-there", nil); err != nil {
			t.Errorf("%s: the client inside: %v", setting, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		_, err := client.Dial(ctx, l.target())
		cancel()
		if err == nil || !strings.Contains(err.Error(), "a limit on connections") {
			t.Errorf("%s: a client outside: %v", setting, err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
		other, err := client.Dial(ctx, l.target(), from("127.0.0.9"))
		cancel()
		if (err == nil) != tc.others {
			t.Errorf("%s: from another address: %v", setting, err)
		}
		if err == nil {
			other.Close()
		}
		for _, c := range conns {
			c.Close()
		}
		dial(t, l.endpoints()).Close()
	}
}

// metric adds up a metric over its labels.
func (l *limited) metric(name string) (sum float64, err error) {
	resp, err := http.Get("http://" + l.nodes[0].http() + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	found := false
	for line := range strings.Lines(string(body)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndex(rest, " "):]), 64)
		if err != nil {
			return 0, err
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, errors.New("no metric " + name)
	}
	return sum, nil
}

// TestTooManyRequestsWait: requests beyond the number in flight are held back and
// none is lost, whether the client knows the limit or not.
func TestTooManyRequestsWait(t *testing.T) {
	l := startLimited(t, "requests_in_flight: 4")
	l.isSetting("limits.requests_in_flight")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := l.c.Create(ctx, "/n", []byte("x")); err != nil {
		t.Fatal(err)
	}
	const n = 1000
	errs := make(chan error, 2*n)
	for range n {
		if err := l.c.WriteAsync(func(_ []client.OpResult, err error) { errs <- err }, client.OpSet("/n", []byte("y"), client.AnyVersion)); err != nil {
			t.Fatal(err)
		}
		if err := l.c.GetAsync("/n", func(_ client.Node, err error) { errs <- err }); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 * n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if st, _, err := l.c.Exists(ctx, "/n"); err != nil || st.Version != n {
		t.Errorf("version %d after %d writes, %v", st.Version, n, err)
	}
	s := greet(t, connect(t, l.nodes[0].grpc(), insecure.NewCredentials()), rawHello())
	if got := s.welcome.GetLimits().GetRequestsInFlight(); got != 4 {
		t.Errorf("the client is told %d", got)
	}
	go func() {
		for seq := uint64(1); seq <= n; seq++ {
			op := &coordpb.Op{Kind: coordpb.Op_KIND_SET, Path: "/n", Version: -1}
			if s.stream.Send(&coordpb.SessionRequest{Requests: []*coordpb.Request{{Seq: seq, Write: &coordpb.Write{Ops: []*coordpb.Op{op}}}}}) != nil {
				return // the test ends, and says why
			}
		}
	}()
	for seq := uint64(1); seq <= n; seq++ {
		if e := s.answer(seq).GetError(); e != nil {
			t.Fatalf("write %d: %v", seq, e)
		}
	}
}

// TestWritesPerSecondAreHeldBack: a session that writes too fast is slowed down,
// and no other, and no write fails.
func TestWritesPerSecondAreHeldBack(t *testing.T) {
	l := startLimited(t, "writes_per_second: 100")
	l.isSetting("limits.writes_per_second")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := l.c.Create(ctx, "/fast", nil); err != nil {
		t.Fatal(err)
	}
	other := dial(t, l.endpoints())
	begin := time.Now()
	const n = 150
	errs := make(chan error, n)
	for range n {
		if err := l.c.WriteAsync(func(_ []client.OpResult, err error) { errs <- err }, client.OpSet("/fast", nil, client.AnyVersion)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.Create(ctx, "/slow", nil); err != nil {
		t.Error(err)
	}
	meanwhile := len(errs)
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	// A tenth of a second's writes at once, the others one by one.
	if took := time.Since(begin); took < 1200*time.Millisecond {
		t.Errorf("%d writes took %s at 100 a second", n, took)
	}
	if meanwhile == n {
		t.Error("another session's write had to wait for all of them")
	}
	if st, _, err := l.c.Exists(ctx, "/fast"); err != nil || st.Version != n {
		t.Errorf("version %d after %d writes, %v", st.Version, n, err)
	}
	if held, err := l.metric("coord_throttled_requests_total"); err != nil || held < n/2 {
		t.Errorf("%g writes are counted as held back, %v", held, err)
	}
}

// TestCallsWithoutSessionAreBounded: one too many is refused for the moment, and
// our client comes again by itself.
func TestCallsWithoutSessionAreBounded(t *testing.T) {
	l := startLimited(t, "unary_in_flight: 1")
	l.isSetting("limits.unary_in_flight")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	coord := coordpb.NewCoordClient(connect(t, l.nodes[0].grpc(), insecure.NewCredentials()))
	held, release := context.WithCancel(ctx)
	defer release()
	ended := make(chan error, 1)
	go func() { // it waits for a transaction that is far away
		_, err := coord.Read(held, &coordpb.ReadRequest{Read: &coordpb.Read{Kind: coordpb.Read_KIND_GET, Path: "/", MinZxid: 1 << 62}})
		ended <- err
	}()
	read := &coordpb.ReadRequest{Read: &coordpb.Read{Kind: coordpb.Read_KIND_EXISTS, Path: "/"}}
	poll(t, 10*time.Second, "the refusal", func() error {
		reply, err := coord.Read(ctx, read)
		e := reply.GetError()
		if err != nil || e.GetCode() != coordpb.Code_CODE_OVERLOADED || !strings.Contains(e.GetMessage(), "limits.unary_in_flight") || e.GetRetryAfterMs() == 0 {
			return fmt.Errorf("%v, %w", reply, err)
		}
		return nil
	})
	plain := dial(t, l.endpoints(), client.WithoutSession())
	done := make(chan error, 1)
	go func() { _, err := plain.Create(client.WithRequestID(ctx, "once"), "/once", nil); done <- err }()
	select {
	case err := <-done:
		t.Fatalf("a write beyond the limit ends with %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if _, err := l.c.Create(ctx, "/with-session", nil); err != nil {
		t.Errorf("a session is held up: %v", err)
	}
	release()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Errorf("the write, when there is room: %v", err)
	}
}
