package zkimport

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/server"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const superDigest = "super:secret"

// fakeZooKeeper answers as an ensemble does, as far as an import asks: a tree
// behind one or more hosts. The tests with a real one are in package test.
type fakeZooKeeper struct {
	t  testing.TB
	mu sync.Mutex // guards what follows
	// tree is what a client sees. before is called before each answer, outside of
	// mu; the connection ends if it says so.
	tree    *znode.Tree
	tx      znode.Tx
	before  func(host string, t wire.Type, path string) (cut bool)
	asked   map[string]int // connections, by host
	session session.ID
	nets    []net.Listener
	wg      sync.WaitGroup
}

// newFake listens at so many hosts.
func newFake(t testing.TB, hosts int) *fakeZooKeeper {
	f := &fakeZooKeeper{t: t, tree: znode.New(), tx: znode.Tx{Zxid: zxid.Make(1, 0), Time: 1}, asked: map[string]int{}}
	for range hosts {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f.nets = append(f.nets, l)
		f.wg.Go(func() { f.accept(l) })
	}
	t.Cleanup(f.close)
	return f
}

func (f *fakeZooKeeper) close() {
	for _, l := range f.nets {
		l.Close()
	}
	f.wg.Wait()
}

func (f *fakeZooKeeper) hosts() (out []string) {
	for _, l := range f.nets {
		out = append(out, l.Addr().String())
	}
	return out
}

// do changes the tree as the superuser.
func (f *fakeZooKeeper) do(ops ...znode.Op) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tx.Zxid, f.tx.Time = f.tx.Zxid.Next(), f.tx.Time+1
	f.tx.Caller = &znode.Caller{Trusted: true, Session: 7}
	for i := range ops {
		if ops[i].ACL == nil {
			ops[i].ACL = znode.OpenACL
		}
		if _, err := f.tree.Apply(&f.tx, &ops[i]); err != nil {
			f.t.Fatalf("%+v: %v", ops[i], err)
		}
	}
}

func create(path, data string) znode.Op {
	return znode.Op{Kind: znode.OpCreate, Path: path, Data: []byte(data)}
}

func (f *fakeZooKeeper) accept(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		f.wg.Go(func() {
			defer nc.Close()
			f.serve(nc, l.Addr().String())
		})
	}
}

// serve answers one connection.
func (f *fakeZooKeeper) serve(nc net.Conn, host string) {
	r := bufio.NewReader(nc)
	frame, err := readFrame(r, 1<<20)
	var hello wire.ConnectRequest
	if err != nil || hello.Decode(frame) != nil {
		return
	}
	f.mu.Lock()
	f.asked[host]++
	f.session++
	welcome := wire.ConnectResponse{Timeout: time.Second, Session: f.session, Password: make([]byte, 16), HasReadOnly: true}
	behind := hello.LastZxid > f.tx.Zxid
	f.mu.Unlock()
	if behind || f.write(nc, welcome.Append(nil)) != nil {
		return
	}
	var caller znode.Caller
	for {
		frame, err := readFrame(r, 1<<20)
		if err != nil {
			return
		}
		h, record, err := wire.DecodeHeader(frame)
		if err != nil {
			return
		}
		var q wire.Request
		if err := q.Decode(h.Type, record); err != nil {
			return
		}
		f.mu.Lock()
		before := f.before
		f.mu.Unlock()
		if before != nil && before(host, h.Type, q.Path) {
			return
		}
		if f.write(nc, f.answer(h, &q, &caller)) != nil || h.Type == wire.CloseSession {
			return
		}
	}
}

func (f *fakeZooKeeper) write(nc net.Conn, payload []byte) error {
	_, err := nc.Write(wire.EndFrame(append(wire.BeginFrame(nil), payload...), 0))
	return err
}

// answer is the payload of the reply.
func (f *fakeZooKeeper) answer(h wire.Header, q *wire.Request, c *znode.Caller) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	var p wire.Reply
	var err error
	switch h.Type {
	case wire.Auth:
		if string(q.Secret) == "refused:refused" {
			return wire.ReplyHeader{Xid: h.Xid, Err: wire.AuthFailed}.Append(nil)
		}
		c.Trusted = c.Trusted || string(q.Secret) == superDigest
	case wire.GetData:
		p.Data, p.Stat, err = f.tree.Get(q.Path, c)
	case wire.GetChildren2:
		p.Names, p.Stat, err = f.tree.Children(q.Path, c)
	case wire.GetACL:
		p.ACL, p.Stat, err = f.tree.ACL(q.Path, c)
	case wire.Sync:
		p.Path = q.Path
	default:
	}
	reply := wire.ReplyHeader{Xid: h.Xid, Zxid: f.tx.Zxid}
	if err != nil {
		reply.Err = wire.NoNode
		if errors.Is(err, znode.ErrNoAuth) {
			reply.Err = wire.NoAuth
		}
		return reply.Append(nil)
	}
	return p.Append(reply.Append(nil), h.Type)
}

// target is a cluster of one server.
func target(t testing.TB, change func(*server.Config)) *localcluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := localcluster.Start(ctx, localcluster.Options{Change: change})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func dial(t testing.TB, c *localcluster.Cluster) *client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cl, err := client.Dial(ctx, c.Target())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	return cl
}

func (f *fakeZooKeeper) open(digests ...string) *Source {
	f.t.Helper()
	s, err := Open(f.t.Context(), SourceConfig{Hosts: f.hosts(), Digests: digests, Timeout: 5 * time.Second})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(s.Close)
	return s
}

func look(t testing.TB, s *Source, top string) *Survey {
	t.Helper()
	v, err := Look(t.Context(), s, top, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// same fails the test unless a fresh comparison finds no difference.
func same(t testing.TB, s *Source, c *client.Client, top, under string) {
	t.Helper()
	out, err := look(t, s, top).Verify(t.Context(), c, under)
	if err != nil || len(out.Differences) > 0 {
		t.Errorf("%s and %s: %+v, %v", top, under, out, err)
	}
}
