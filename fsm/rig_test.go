package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// rig drives one machine as Raft would, one entry after the other.
type rig struct {
	t     testing.TB
	m     *Machine
	hook  *recorder
	index uint64
	term  uint64
	clock int64
	boots map[string]uint64 // number used last on each server's line
}

const (
	testServer = "n1~0011223344556677"
	testBoot   = 77
	testEpoch  = 7
	startClock = 1_700_000_000_000
)

// newRig returns a machine whose first epoch is open and whose server has booted.
func newRig(t testing.TB) *rig {
	r := &rig{t: t, hook: &recorder{}, term: 1, clock: startClock, boots: map[string]uint64{}}
	r.m = New(Options{Hook: r.hook})
	r.epoch(testEpoch)
	r.done(&Command{Kind: CmdBoot, Boot: &Boot{Server: testServer, Nonce: testBoot}})
	return r
}

// recorder keeps what the hook heard. It copies the reused slice of changes.
type recorder struct {
	results []*Result
	changes [][]znode.Change
	opened  []openedSession
	ended   []endedSession
	entries []uint64
	order   []string
}

type openedSession struct {
	id session.ID
	by session.Protocol
}

func (h *recorder) Applied(r *Result, changes []znode.Change) {
	h.results = append(h.results, r)
	h.changes = append(h.changes, append([]znode.Change(nil), changes...))
	h.order = append(h.order, "applied "+r.Kind.String())
}

func (h *recorder) SessionOpened(id session.ID, by session.Protocol) {
	h.opened = append(h.opened, openedSession{id, by})
}

func (h *recorder) SessionEnded(id session.ID, by session.Protocol, reason session.EndReason) {
	h.ended = append(h.ended, endedSession{id, by, reason})
	h.order = append(h.order, "ended "+reason.String())
}

func (h *recorder) EntryDone(index, _ uint64, last zxid.ID) {
	h.entries = append(h.entries, index)
	h.order = append(h.order, fmt.Sprintf("entry %d", index))
}

func (h *recorder) Restored(index uint64, last zxid.ID) {
	h.order = append(h.order, fmt.Sprintf("restored %d %s", index, last))
}

func (h *recorder) reset() { *h = recorder{} }

// encodeEntry is the data of an entry with the commands.
func encodeEntry(clock int64, cmds ...*Command) []byte {
	b := NewBatch(nil, clock)
	for _, c := range cmds {
		b = AppendToBatch(b, AppendCommand(nil, c))
	}
	return b
}

// entry applies one log entry and returns its results.
func (r *rig) entry(cmds ...*Command) []*Result {
	r.t.Helper()
	r.index++
	before := len(r.hook.results)
	if err := r.m.ApplyEntry(r.index, r.term, encodeEntry(r.clock, cmds...)); err != nil {
		r.t.Fatalf("entry %d: %v", r.index, err)
	}
	return r.hook.results[before:]
}

func (r *rig) one(c *Command) *Result {
	r.t.Helper()
	return r.entry(c)[0]
}

// done applies c and fails unless it succeeded.
func (r *rig) done(c *Command) *Result {
	r.t.Helper()
	res := r.one(c)
	if res.Status != StatusDone || res.Err != nil {
		r.t.Fatalf("%s: status %s, %v", c.Kind, res.Status, res.Err)
	}
	return res
}

// refused applies c and fails unless it was refused for good with want.
func (r *rig) refused(c *Command, want error) *Result {
	r.t.Helper()
	return r.is(r.one(c), StatusDone, want)
}

// is fails unless the result has the status and matches the error (nil: none).
func (r *rig) is(res *Result, s Status, want error) *Result {
	r.t.Helper()
	if res.Status != s || !errors.Is(res.Err, want) || (want == nil && res.Err != nil) {
		r.t.Fatalf("%s %d: status %s, error %v; want %s, %v", res.Kind, res.Seq, res.Status, res.Err, s, want)
	}
	return res
}

// epoch begins the next term and opens its epoch.
func (r *rig) epoch(minEpoch uint32) *Result {
	r.t.Helper()
	if r.index > 0 {
		r.term++
	}
	return r.done(&Command{Kind: CmdNewEpoch, Epoch: &NewEpoch{Term: r.term, Clock: r.clock, MinEpoch: minEpoch, ClusterID: "c-1"}})
}

// onServer puts the next number of the test server's line on c.
func (r *rig) onServer(c *Command) *Command {
	r.boots[testServer]++
	c.Line, c.Seq = LineRef{Server: testServer, Boot: testBoot}, r.boots[testServer]
	return c
}

// client is a gRPC client of a session, as far as the log sees it.
type client struct {
	r    *rig
	info SessionInfo
	seq  uint64
	gen  uint64
}

func nonce(n int) (x session.Nonce) {
	copy(x[:], fmt.Sprintf("nonce-%d", n))
	return x
}

func openOf(n int) *Open {
	o := &Open{
		Nonce: nonce(n), Timeout: 10 * time.Second, Name: fmt.Sprintf("client-%d", n),
		Server: testServer, Boot: testBoot, Address: "10.0.0.1:999",
	}
	copy(o.Secret[:], fmt.Sprintf("secret-%d", n))
	return o
}

// open opens a session with the n-th nonce and secret.
func (r *rig) open(n int) *client {
	r.t.Helper()
	return r.openWith(openOf(n))
}

func (r *rig) openWith(o *Open) *client {
	r.t.Helper()
	res := r.done(r.onServer(&Command{Kind: CmdOpen, Open: o}))
	return &client{r: r, info: *res.Session, gen: res.Session.Generation}
}

func (c *client) line() LineRef { return LineRef{Session: c.info.ID, Generation: c.gen} }

// next puts the next number of the session's line on a command.
func (c *client) next(cmd *Command) *Command {
	c.seq++
	cmd.Line, cmd.Seq = c.line(), c.seq
	return cmd
}

func (c *client) write(ops ...znode.Op) *Command {
	return c.next(&Command{Kind: CmdWrite, Write: &Write{Multi: len(ops) != 1, Ops: ops}})
}

func (c *client) session() *session.Session { return c.r.m.state.Sessions.Get(c.info.ID) }

func create(path string) znode.Op {
	return znode.Op{Kind: znode.OpCreate, Path: path, Data: []byte("d"), ACL: znode.OpenACL, Version: znode.AnyVersion}
}

func ephemeral(path string) znode.Op {
	op := create(path)
	op.Node = znode.Ephemeral
	return op
}

func set(path, data string) znode.Op {
	return znode.Op{Kind: znode.OpSet, Path: path, Data: []byte(data), Version: znode.AnyVersion}
}

func del(path string) znode.Op {
	return znode.Op{Kind: znode.OpDelete, Path: path, Version: znode.AnyVersion}
}

func (r *rig) exists(path string) bool {
	_, ok := r.m.state.Tree.Exists(path)
	return ok
}

// unchanged fails if the state is not the one whose digest was taken before.
func (r *rig) digest() uint64 {
	d, _, _ := r.m.Digest()
	return d
}

func (r *rig) snapshot() []byte {
	r.t.Helper()
	var b bytes.Buffer
	if err := r.m.Snapshot().Encode(&b); err != nil {
		r.t.Fatal(err)
	}
	return b.Bytes()
}

// reborn replaces the machine by one restored from its snapshot.
func (r *rig) reborn() {
	r.t.Helper()
	b := r.snapshot()
	before := r.digest()
	r.m = New(Options{Hook: r.hook})
	if err := r.m.Restore(bytes.NewReader(b)); err != nil {
		r.t.Fatal(err)
	}
	if r.digest() != before {
		r.t.Fatal("the restored machine has another digest")
	}
	if err := r.m.state.Sessions.Check(); err != nil {
		r.t.Fatal(err)
	}
	if err := r.m.state.Tree.Check(); err != nil {
		r.t.Fatal(err)
	}
}
