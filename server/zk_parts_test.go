package server

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/zxid"
)

// TestRingIsAQueue, compared with a slice over many random steps.
func TestRingIsAQueue(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var r ring[*int]
	var want []*int
	for i := range 100_000 {
		for range rnd.IntN(20) {
			v := i
			r.push(&v)
			want = append(want, &v)
		}
		for range rnd.IntN(21) {
			if len(want) == 0 {
				break
			}
			if *r.front() != want[0] || r.pop() != want[0] {
				t.Fatalf("step %d: another item comes first", i)
			}
			want = want[1:]
		}
		if r.len() != len(want) {
			t.Fatalf("step %d: %d items, want %d", i, r.len(), len(want))
		}
	}
	for r.len() > 0 {
		r.pop()
	}
	if slices.ContainsFunc(r.items, func(p *int) bool { return p != nil }) {
		t.Error("an empty ring keeps items alive")
	}
	for range 10 * ringKept {
		r.push(nil)
	}
	for r.len() > 0 {
		r.pop()
	}
	if len(r.items) > ringKept {
		t.Errorf("an empty ring keeps room for %d", len(r.items))
	}
}

// replies takes what is queued apart.
func (p zkParcel) replies(t *testing.T) (out []wire.ReplyHeader) {
	t.Helper()
	in := zkInput{conn: &scripted{parts: [][]byte{bytes.Clone(p.bytes())}}, pool: zkReadBuffers}
	for {
		b, err := in.frame(1 << 20)
		if err != nil {
			return out
		}
		h, _, err := wire.DecodeReplyHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, h)
	}
}

// TestZxidsOfRepliesNeverFall, but for those that show none.
func TestZxidsOfRepliesNeverFall(t *testing.T) {
	o := newZKOut(1 << 20)
	for _, z := range []zxid.ID{5, 3, 0, 9, 7} {
		o.reply(wire.ReplyHeader{Zxid: z}, wire.Ping, nil)
	}
	p := o.take()
	var got []zxid.ID
	for _, h := range p.replies(t) {
		got = append(got, h.Zxid)
	}
	if want := []zxid.ID{5, 5, 0, 9, 9}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestQueueEndsAtItsBoundAndLosesNoEvent: when one does not fit, nothing that comes
// behind it is sent either.
func TestQueueEndsAtItsBoundAndLosesNoEvent(t *testing.T) {
	o := newZKOut(1000)
	e := wire.Event{Type: wire.EventChanged, Path: "/" + strings.Repeat("x", 100)}
	queued := 0
	for o.event(e) {
		queued++
	}
	if queued < 5 || queued > 10 {
		t.Errorf("%d events within 1000 bytes", queued)
	}
	o.reply(wire.ReplyHeader{Xid: 1, Zxid: 1}, wire.Ping, nil)
	if !o.ping(wire.ReplyHeader{Zxid: 1}) {
		t.Error("a ping waits for a connection that has ended")
	}
	if !o.event(e) {
		t.Error("the end is told twice")
	}
	if p := o.take(); len(p.bytes()) != 0 || !p.last {
		t.Errorf("%d bytes behind a lost event", len(p.bytes()))
	}
}

// TestEndLetsOutWhatIsQueued, and nothing more.
func TestEndLetsOutWhatIsQueued(t *testing.T) {
	o := newZKOut(1000)
	o.reply(wire.ReplyHeader{Xid: 1, Zxid: 1}, wire.Ping, nil)
	o.end()
	o.reply(wire.ReplyHeader{Xid: 2, Zxid: 1}, wire.Ping, nil)
	o.raw([]byte("x"))
	p := o.take()
	if hs := p.replies(t); len(hs) != 1 || hs[0].Xid != 1 || !p.last {
		t.Errorf("%+v, last %v", hs, p.last)
	}
	if _, ok := o.takes(); ok {
		t.Error("a connection that ends takes requests")
	}
}

// A connection takes no events any more once it is told to end. Nothing that is
// still sent on it may show a transaction from then on, of whatever request it is
// the answer: the client would set its watches anew from behind it, and never hear
// of what it has missed.
func TestConnectionThatEndsShowsNothingBehindItsLastEvent(t *testing.T) {
	changed := wire.Event{Type: wire.EventChanged, Path: "/a"}
	for _, full := range []bool{false, true} {
		o := newZKOut(100)
		o.reply(wire.ReplyHeader{Xid: 1, Zxid: 5}, wire.SetData, nil)
		o.event(changed)
		for full && o.event(changed) {
		}
		o.end()
		o.event(changed) // at 6: it comes too late
		later := wire.ReplyHeader{Xid: 2, Zxid: 6}
		o.reply(later, wire.GetData, nil)
		o.ping(later)
		o.mu.Lock()
		o.replyLocked(later, wire.CloseSession, nil)
		o.mu.Unlock()
		p := o.take()
		for _, h := range p.replies(t) {
			if h.Xid != wire.XidEvent && h.Zxid > 5 {
				t.Errorf("full %v: the client is shown %s, and was told of nothing behind 5", full, h.Zxid)
			}
		}
		if got := len(p.replies(t)); full && got != 0 || !full && got != 2 {
			t.Errorf("full %v: %d frames are sent", full, got)
		}
	}
}

// TestPingsWaitWhileTheirAnswersAreNotTaken, and go on when they are.
func TestPingsWaitWhileTheirAnswersAreNotTaken(t *testing.T) {
	o := newZKOut(1 << 20)
	for i := range zkMaxPings {
		if !o.ping(wire.ReplyHeader{Xid: wire.XidPing}) {
			t.Fatalf("ping %d waits", i)
		}
	}
	if o.ping(wire.ReplyHeader{}) {
		t.Error("no bound")
	}
	o.take().release()
	if !o.ping(wire.ReplyHeader{}) {
		t.Error("it waits for ever")
	}
}

// scripted is a connection from which the given parts are read.
type scripted struct {
	net.Conn
	parts [][]byte
	err   error
}

func (c *scripted) Read(p []byte) (int, error) {
	if len(c.parts) == 0 {
		return 0, cmpOr(c.err, io.EOF)
	}
	n := copy(p, c.parts[0])
	if c.parts[0] = c.parts[0][n:]; len(c.parts[0]) == 0 {
		c.parts = c.parts[1:]
	}
	return n, nil
}

func cmpOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// TestFramesComeInAnyFragmentation: one byte at a time, many in one piece, larger
// than the buffer.
func TestFramesComeInAnyFragmentation(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var all []byte
	var want [][]byte
	for range 300 {
		n := rnd.IntN(200)
		if rnd.IntN(20) == 0 {
			n = rnd.IntN(3 * zkReadBytes)
		}
		frame := make([]byte, n)
		for i := range frame {
			frame[i] = byte(rnd.Uint32())
		}
		want = append(want, frame)
		all = append(all, zkFrame(frame)...)
	}
	for _, most := range []int{1, 7, 1000, len(all)} {
		var parts [][]byte
		for rest := all; len(rest) > 0; {
			n := min(1+rnd.IntN(most), len(rest))
			parts = append(parts, rest[:n])
			rest = rest[n:]
		}
		in := newZKInput(&scripted{parts: parts})
		for i := range want {
			got, err := in.frame(1 << 20)
			if err != nil || !bytes.Equal(got, want[i]) {
				t.Fatalf("parts of up to %d: frame %d of %d bytes: %d bytes, %v", most, i, len(want[i]), len(got), err)
			}
		}
		if _, err := in.frame(1 << 20); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
	}
}

// TestLengthsThatCannotBe end the connection, and cost no memory.
func TestLengthsThatCannotBe(t *testing.T) {
	for _, head := range [][]byte{{0xff, 0xff, 0xff, 0xff}, {0x80, 0, 0, 0}, {0x7f, 0xff, 0xff, 0xff}, {0, 0x10, 0, 1}} {
		if _, err := newZKInput(&scripted{parts: [][]byte{head}}).frame(1 << 20); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%x: %v", head, err)
		}
	}
	for _, cut := range [][]byte{{0}, {0, 0, 0, 5, 1}, {0, 0x0f, 0xff, 0xff, 1, 2, 3}} {
		b, err := newZKInput(&scripted{parts: [][]byte{cut}}).frame(1 << 20)
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || b != nil {
			t.Errorf("%x: %x, %v", cut, b, err)
		}
	}
}

// TestSilentConnectionHoldsNoReadBuffer while it is waited for.
func TestSilentConnectionHoldsNoReadBuffer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	counted := newConnCounter(l, Limits{})
	defer counted.Close()
	far, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near, err := counted.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	in := newZKInput(near)
	for range 3 {
		if _, err := far.Write(zkFrame([]byte("request"))); err != nil {
			t.Fatal(err)
		}
		if b, err := in.frame(100); err != nil || string(b) != "request" {
			t.Fatalf("%q, %v", b, err)
		}
		if err := near.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := in.frame(100); err == nil || !passing(err) || in.buf != nil {
			t.Errorf("%v, buffer %v", err, in.buf)
		}
		if err := near.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
}
