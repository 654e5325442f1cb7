package fsm

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

func TestHookHearsEverythingInLogOrder(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.hook.reset()
	r.entry(c.write(create("/a")), c.next(&Command{Kind: CmdSkip, Code: CodeLimit}), c.next(&Command{Kind: CmdClose}))
	r.entry()
	want := []string{"applied write", "applied skip", "applied close", "ended closed", "entry " + itoa(r.index-1), "entry " + itoa(r.index)}
	if !reflect.DeepEqual(r.hook.order, want) {
		t.Fatalf("heard %v, want %v", r.hook.order, want)
	}
}

// lockProbe finds out whether the lock is held when the hook is called.
type lockProbe struct {
	recorder
	m      *Machine
	locked bool
}

func (h *lockProbe) Applied(*Result, []znode.Change) { h.locked = !h.m.mu.TryRLock() }

func TestHookIsCalledUnderTheWriteLock(t *testing.T) {
	probe := &lockProbe{}
	m := New(Options{})
	probe.m = m
	m.SetHook(probe)
	err := m.ApplyEntry(1, 1, encodeEntry(0, &Command{Kind: CmdNewEpoch, Epoch: &NewEpoch{Term: 1}}))
	if err != nil || !probe.locked {
		t.Fatalf("locked %v, %v", probe.locked, err)
	}
}

// The lock is released between the chunks of an entry, never inside one.
func TestReadersSeeWholeChunksOnly(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	r.done(c.write(create("/a")))
	const chunks = 20
	var cmds []*Command
	for range chunks * chunkSize {
		cmds = append(cmds, c.write(set("/a", "x")))
	}
	stop := make(chan struct{})
	base := r.m.Zxid()
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			r.m.View(func(v *View) {
				if done := v.Zxid - base; done%chunkSize != 0 {
					t.Errorf("a reader saw %d transactions of the entry", done)
				}
			})
		}
	})
	r.entry(cmds...)
	close(stop)
	reader.Wait()
	if r.m.Zxid() != base+chunks*chunkSize {
		t.Fatalf("the entry ended at %s", r.m.Zxid())
	}
}

func TestUndecodableEntryStopsTheReplica(t *testing.T) {
	r := newRig(t)
	good := AppendCommand(nil, &Command{Kind: CmdBoot, Boot: &Boot{Server: "n", Nonce: 1}})
	for what, data := range map[string][]byte{
		"empty":               {},
		"unknown version":     append([]byte{entryVersion + 1}, make([]byte, 8)...),
		"bad command":         AppendToBatch(NewBatch(nil, 0), []byte{9, 9, 9}),
		"good, then cut":      append(AppendToBatch(NewBatch(nil, 0), good), 200),
		"bad in second chunk": append(manyCommands(good, chunkSize), 3, 1, 2, 3),
	} {
		before := r.m.Index()
		err := r.m.ApplyEntry(r.index+1, r.term, data)
		if !errors.Is(err, ErrStop) || !errors.Is(err, ErrBadCommand) {
			t.Errorf("%s: %v", what, err)
		}
		if r.m.Index() != before {
			t.Errorf("%s: counted as applied", what)
		}
	}
	err := r.m.ApplyEntry(r.index+1, r.term, append([]byte{99}, make([]byte, 8)...))
	if !strings.Contains(err.Error(), "version 99") || !strings.Contains(err.Error(), "knows 1") {
		t.Errorf("%v", err)
	}
}

func manyCommands(cmd []byte, n int) []byte {
	b := NewBatch(nil, 0)
	for range n {
		b = AppendToBatch(b, cmd)
	}
	return b
}

func TestAnEntryIsNotAppliedTwice(t *testing.T) {
	r := newRig(t)
	before := r.digest()
	if err := r.m.ApplyEntry(r.index, r.term, encodeEntry(r.clock+5)); !errors.Is(err, ErrStop) {
		t.Fatalf("%v", err)
	}
	if r.digest() != before {
		t.Fatal("the state changed")
	}
}

func TestWaitsEndWithTheirEntryOrTheirContext(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	ctx, cancel := context.WithCancel(t.Context())
	if err := r.m.WaitIndex(ctx, r.m.Index()); err != nil {
		t.Fatal(err)
	}
	if err := r.m.WaitZxid(ctx, r.m.Zxid()); err != nil {
		t.Fatal(err)
	}
	const n = 50
	var ready sync.WaitGroup
	errs := make(chan error, 2*n)
	start, z := r.m.Index(), r.m.Zxid()
	for i := range uint64(n) {
		ready.Add(2)
		go func() {
			ready.Done()
			err := r.m.WaitIndex(ctx, start+1+i)
			if err == nil && r.m.Index() < start+1+i {
				err = errors.New("woken too early")
			}
			errs <- err
		}()
		go func() {
			ready.Done()
			err := r.m.WaitZxid(ctx, z+1+zxid.ID(i))
			if err == nil && r.m.Zxid() < z+1+zxid.ID(i) {
				err = errors.New("woken too early")
			}
			errs <- err
		}()
	}
	ready.Wait()
	for range n {
		r.one(c.write(set("/none", "")))
	}
	for range 2 * n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	go func() { errs <- r.m.WaitIndex(ctx, start+1000) }()
	waitFor(t, func() bool { return r.m.byIndex.n.Load() == 1 })
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	if err := r.m.WaitZxid(ctx, r.m.Zxid()+1); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	if r.m.byIndex.n.Load() != 0 || r.m.byZxid.n.Load() != 0 {
		t.Fatal("a waiter was left behind")
	}
}

// waitFor polls until ok, for at most ten seconds.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in ten seconds")
		}
	}
}

func TestDigestNeverShowsAPartOfAnEntry(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	var datas [][]byte
	for range 30 {
		var cmds []*Command
		for range 3 * chunkSize {
			cmds = append(cmds, c.write(set("/", "x")))
		}
		cmds[0].Ack = c.seq - 3*chunkSize
		datas = append(datas, encodeEntry(r.clock, cmds...))
	}
	shadow := New(Options{})
	if err := shadow.Restore(strings.NewReader(string(r.snapshot()))); err != nil {
		t.Fatal(err)
	}
	type sample struct{ digest, index uint64 }
	samples := make(chan []sample)
	stop := make(chan struct{})
	go func() {
		var got []sample
		for {
			select {
			case <-stop:
				samples <- got
				return
			default:
				d, i, _ := r.m.Digest()
				got = append(got, sample{d, i})
			}
		}
	}()
	want := map[uint64]uint64{r.index: r.digest()}
	for _, data := range datas {
		r.index++
		if err := errors.Join(r.m.ApplyEntry(r.index, r.term, data), shadow.ApplyEntry(r.index, r.term, data)); err != nil {
			t.Fatal(err)
		}
		d, i, _ := shadow.Digest()
		want[i] = d
	}
	close(stop)
	for _, s := range <-samples {
		if want[s.index] != s.digest {
			t.Fatalf("digest %x at index %d, want %x", s.digest, s.index, want[s.index])
		}
	}
}

func TestFinalAnswersNeedNoFurtherOffering(t *testing.T) {
	for s := StatusDone; s <= StatusOldBoot; s++ {
		if want := s != StatusGap && s != StatusAgain; s.Final() != want || s.String() == "status?" {
			t.Errorf("%s: final %v", s, s.Final())
		}
	}
}

func TestKeptAnswersStayBoundedWhenTheClientAcks(t *testing.T) {
	r := newRig(t)
	c := r.open(1)
	for range 50 {
		var cmds []*Command
		for range 100 {
			w := c.write(set("/", "x"))
			w.Ack = c.seq - min(c.seq, 10)
			cmds = append(cmds, w)
		}
		r.entry(cmds...)
		r.hook.reset()
	}
	if n, bytes := c.session().Line.Unacked(); n != 10 || bytes <= 0 {
		t.Fatalf("%d answers of %d bytes kept", n, bytes)
	}
}
