package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/zxid"
)

func appendAnswer(b []byte, v Value) []byte { return append(b, v.(answer)...) }

func readAnswer(b []byte) (Value, error) { return answer(b), nil }

func encode(t testing.TB, i *Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := i.Encode(&b, appendAnswer); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// filled is a table with everything in it.
func filled(t testing.TB) *Table {
	tab := NewTable()
	for id := ID(1); id <= 40; id++ {
		s := newSession(id << 32)
		s.Name = fmt.Sprint("worker-", id)
		s.Identities = []Identity{{"digest", "user:hash"}, {"ip", "10.0.0.1"}}
		mustOpen(t, tab, s)
		l := &tab.Edit(s.ID).Line
		for seq := uint64(1); seq <= uint64(id); seq++ {
			l.Record(seq, answer(strings.Repeat("r", int(seq))), seq%5 != 0)
		}
		l.Ack(uint64(id) / 2)
	}
	for id := ID(30); id <= 33; id++ {
		tab.End(id<<32, Expired, zxid.ID(500+id/2), 12345)
	}
	tab.Boot("n1~aa", 7)
	tab.Boot("n1~aa", 8)
	tab.Boot("n2~bb", 1<<63)
	tab.EditServerLine("n2~bb").Line.Record(1, answer("opened"), true)
	for i := range 20 {
		if err := tab.Remember(&Request{ID: fmt.Sprint("q", i), End: int64(100 - i), Hash: 5, Value: answer("did it")}); err != nil {
			t.Fatal(err)
		}
	}
	big := answer(strings.Repeat("x", 300<<10)) // over several chunks
	tab.Edit(1<<32).Line.Record(2, big, true)
	return tab
}

func TestDecodedTableIsTheOneEncoded(t *testing.T) {
	for name, tab := range map[string]*Table{"empty": NewTable(), "filled": filled(t)} {
		image := tab.Snapshot()
		b := encode(t, image)
		got, err := Decode(bytes.NewReader(b), readAnswer)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		mustCheck(t, got)
		if got.Digest() != tab.Digest() || got.Digest() != image.Digest() {
			t.Errorf("%s: digest %#x, image %#x, was %#x", name, got.Digest(), image.Digest(), tab.Digest())
		}
		if again := encode(t, got.Snapshot()); !bytes.Equal(again, b) {
			t.Errorf("%s: the bytes differ after a round trip", name)
		}
		if got.Boot("n1~aa", 7) == Booted && name == "filled" {
			t.Error("a stale boot is taken for a new one after a round trip")
		}
	}
}

// Answers, acknowledgements and outcomes survive a snapshot: a write offered
// again to a restored replica gets the same answer.
func TestRestoredLineAnswersAsBefore(t *testing.T) {
	tab := filled(t)
	got, err := Decode(bytes.NewReader(encode(t, tab.Snapshot())), readAnswer)
	if err != nil {
		t.Fatal(err)
	}
	for s := range tab.All() {
		for seq := uint64(0); seq <= s.Line.Next()+1; seq++ {
			wantVerdict, want := s.Line.Check(seq)
			verdict, v := got.Get(s.ID).Line.Check(seq)
			if verdict != wantVerdict || v != want {
				t.Errorf("session %s, number %d: %s %v, want %s %v", s.ID, seq, verdict, v, wantVerdict, want)
			}
		}
	}
}

func TestImageEndsByItself(t *testing.T) {
	b := encode(t, filled(t).Snapshot())
	r := strings.NewReader(string(b) + "what follows")
	if _, err := Decode(r, readAnswer); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(r)
	if string(rest) != "what follows" {
		t.Errorf("%d bytes are left, want those that follow", len(rest))
	}
	// In single bytes, as a slow network may deliver it.
	if _, err := Decode(iotest.OneByteReader(bytes.NewReader(b)), readAnswer); err != nil {
		t.Error(err)
	}
}

func TestDamagedImageIsRefused(t *testing.T) {
	b := encode(t, filled(t).Snapshot())
	rng := seed.Rand(t)
	for cut := 0; cut < len(b); cut += 1 + rng.IntN(len(b)/500) {
		if _, err := Decode(bytes.NewReader(b[:cut]), readAnswer); !errors.Is(err, ErrBadImage) {
			t.Fatalf("cut at %d of %d: %v", cut, len(b), err)
		}
	}
	for range 500 {
		c := bytes.Clone(b)
		at := rng.IntN(len(c))
		c[at] ^= 1 << rng.IntN(8)
		if _, err := Decode(bytes.NewReader(c), readAnswer); !errors.Is(err, ErrBadImage) {
			t.Fatalf("a bit flipped at %d of %d: %v", at, len(b), err)
		}
	}
}

func TestErrorOfTheReaderIsNotABadImage(t *testing.T) {
	b := encode(t, filled(t).Snapshot())
	broken := errors.New("disk gone")
	for _, at := range []int{0, 5, 20, len(b) / 2} {
		r := io.MultiReader(bytes.NewReader(b[:at]), iotest.ErrReader(broken))
		if _, err := Decode(r, readAnswer); !errors.Is(err, broken) || errors.Is(err, ErrBadImage) {
			t.Errorf("reader fails at %d: %v", at, err)
		}
	}
}

func TestErrorOfTheWriterIsReported(t *testing.T) {
	for _, room := range []int{0, 100, maxChunk + 100} {
		w := &fullWriter{room: room}
		if err := filled(t).Snapshot().Encode(w, appendAnswer); !errors.Is(err, errFull) {
			t.Errorf("writer with room for %d: %v", room, err)
		}
	}
}

var errFull = errors.New("full")

type fullWriter struct{ room int }

func (w *fullWriter) Write(b []byte) (int, error) {
	if w.room -= len(b); w.room < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// sealed makes an image of any body, with right checksums: what an attacker
// who can write snapshots can send.
func sealed(body []byte) []byte {
	var b bytes.Buffer
	w := newChunkWriter(&b)
	_ = w.finish(w.write(body))
	return b.Bytes()
}

func imageBody(version uint64, tail ...byte) []byte {
	b := binary.AppendUvarint(imageMagic[:len(imageMagic):len(imageMagic)], version)
	return append(appendUint64(b, 0), tail...)
}

func TestHostileImageCostsNothing(t *testing.T) {
	many := binary.AppendUvarint(nil, 1<<31-1)
	huge := binary.AppendUvarint(nil, 1<<62)
	session := appendSession(nil, &Session{ID: 1, Generation: 1, Timeout: time.Second})
	line := append(binary.AppendUvarint(binary.AppendUvarint(nil, 1<<60), 0), huge...)
	tests := map[string][]byte{
		"nothing":                 {},
		"an unknown version":      imageBody(2),
		"many sessions, none":     imageBody(1, many...),
		"too many sessions":       imageBody(1, huge...),
		"too many ended":          imageBody(1, append([]byte{0}, many...)...),
		"a line of 2^60 answers":  imageBody(1, append(append([]byte{1}, session[:len(session)-3]...), line...)...),
		"a string of 2^62 bytes":  imageBody(1, append([]byte{0, 0, 1}, huge...)...),
		"a string of 1 MB, none":  imageBody(1, append([]byte{0, 0, 1}, binary.AppendUvarint(nil, maxString)...)...),
		"the same session twice":  imageBody(1, append(append([]byte{2}, session...), session...)...),
		"a number of 11 bytes":    imageBody(1, bytes.Repeat([]byte{0xff}, 11)...),
		"more after the end":      imageBody(1, 0, 0, 0, 0, 0),
		"the digest of another":   append(appendUint64(binary.AppendUvarint(bytes.Clone(imageMagic[:]), 1), 99), 0, 0, 0, 0),
		"a session without an id": imageBody(1, append([]byte{1, 0}, make([]byte, 80)...)...),
	}
	for name, body := range tests {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Decode(bytes.NewReader(sealed(body)), readAnswer)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrBadImage) {
			t.Errorf("%s: %v", name, err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
			t.Errorf("%s: took %d bytes of memory", name, used)
		}
	}
	_, err := Decode(bytes.NewReader(sealed(imageBody(2))), readAnswer)
	if err == nil || !strings.Contains(err.Error(), "version 2") || !strings.Contains(err.Error(), "version 1") {
		t.Errorf("the error %q does not name both versions", err)
	}
	oversized := make([]byte, chunkHeader)
	binary.LittleEndian.PutUint32(oversized, 1<<31)
	if _, err := Decode(bytes.NewReader(oversized), readAnswer); !errors.Is(err, ErrBadImage) {
		t.Errorf("a chunk of 2 GiB: %v", err)
	}
}

func TestAnswerThatCannotBeReadRefusesTheImage(t *testing.T) {
	b := encode(t, filled(t).Snapshot())
	bad := errors.New("not a result")
	if _, err := Decode(bytes.NewReader(b), func([]byte) (Value, error) { return nil, bad }); !errors.Is(err, bad) || !errors.Is(err, ErrBadImage) {
		t.Errorf("a decoder that fails: %v", err)
	}
	if _, err := Decode(bytes.NewReader(b), func([]byte) (Value, error) { return nil, nil }); !errors.Is(err, ErrBadImage) {
		t.Errorf("a decoder that gives nothing: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	tab := NewTable()
	mustOpen(f, tab, newSession(1))
	tab.Edit(1).Line.Record(1, answer("a"), true)
	tab.Boot("n1", 5)
	_ = tab.Remember(&Request{ID: "q", Value: answer("b")})
	b := encode(f, tab.Snapshot())
	f.Add(b, false)
	f.Add(imageBody(1, 0, 0, 0, 0), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal {
			b = sealed(b)
		}
		tab, err := Decode(bytes.NewReader(b), readAnswer)
		if err != nil {
			return
		}
		mustCheck(t, tab)
		again, err := Decode(bytes.NewReader(encode(t, tab.Snapshot())), readAnswer)
		if err != nil || again.Digest() != tab.Digest() {
			t.Fatalf("what was decoded does not survive a second time: %v", err)
		}
	})
}

// An image is what the table was, whatever is done to the table while it is
// written. Run with -race.
func TestImageDoesNotSeeLaterChanges(t *testing.T) {
	tab := filled(t)
	want := encode(t, tab.Snapshot())
	image := tab.Snapshot()
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			if got := encode(t, image); !bytes.Equal(got, want) {
				t.Error("the image changed")
				return
			}
		}
	})
	rng := seed.Rand(t)
	for round := range 30 {
		change(t, tab, rng, round)
		if round%7 == 0 {
			tab.Snapshot()
		}
	}
	wg.Wait()
	mustCheck(t, tab)
}

// change does something of everything to a filled table.
func change(t *testing.T, tab *Table, rng *rand.Rand, round int) {
	for id := ID(1); id <= 40; id++ {
		s := tab.Edit(id << 32)
		if s == nil {
			continue
		}
		s.Touched++
		s.Generation++
		s.Identities = []Identity{{"ip", fmt.Sprint(round)}}
		s.Line.Record(s.Line.Next(), answer("later"), true)
		s.Line.Ack(s.Line.Next() - uint64(rng.IntN(3)) - 1)
	}
	mustOpen(t, tab, newSession(ID(100+round)<<32))
	tab.End(ID(rng.IntN(40)+1)<<32, Killed, zxid.ID(1000+round), 1)
	tab.Boot("n1~aa", uint64(100+round))
	tab.EditServerLine("n2~bb").Line.Record(tab.ServerLine("n2~bb").Line.Next(), answer("y"), true)
	_ = tab.Remember(&Request{ID: fmt.Sprint("later", round), End: 5})
	tab.ForgetRequests(int64(80 + round))
}

// Every field of what is kept is in the digest and comes back from an image: a
// field that somebody adds and forgets in fields.go fails here.
func TestEveryFieldIsKept(t *testing.T) {
	build := func(edit func(s *Session, e *Ended, l *ServerLine, r *Request)) *Table {
		tab := NewTable()
		s := &Session{ID: 5, Timeout: time.Second, Generation: 1}
		e := &Ended{ID: 6, Next: 1, Reason: Closed}
		l := &ServerLine{Server: "n1"}
		r := &Request{ID: "q", Value: answer("v")}
		edit(s, e, l, r)
		mustOpen(t, tab, s)
		tab.rememberEnded(e)
		tab.addServer(l)
		if err := tab.Remember(r); err != nil {
			t.Fatal(err)
		}
		return tab
	}
	base := build(func(*Session, *Ended, *ServerLine, *Request) {}).Digest()
	pick := []func(s *Session, e *Ended, l *ServerLine, r *Request) any{
		func(s *Session, _ *Ended, _ *ServerLine, _ *Request) any { return s },
		func(_ *Session, e *Ended, _ *ServerLine, _ *Request) any { return e },
		func(_ *Session, _ *Ended, l *ServerLine, _ *Request) any { return l },
		func(_ *Session, _ *Ended, _ *ServerLine, r *Request) any { return r },
	}
	internal := map[string]bool{"digest": true, "edition": true, "dirty": true, "past": true}
	for _, choose := range pick {
		typ := reflect.TypeOf(choose(&Session{}, &Ended{}, &ServerLine{}, &Request{})).Elem()
		for i := range typ.NumField() {
			field := typ.Field(i)
			if internal[field.Name] {
				continue
			}
			tab := build(func(s *Session, e *Ended, l *ServerLine, r *Request) {
				setSomething(t, reflect.ValueOf(choose(s, e, l, r)).Elem().Field(i))
			})
			if tab.Digest() == base {
				t.Errorf("%s.%s is not in the digest", typ.Name(), field.Name)
			}
			got, err := Decode(bytes.NewReader(encode(t, tab.Snapshot())), readAnswer)
			if err != nil {
				t.Errorf("%s.%s: %v", typ.Name(), field.Name, err)
			} else if got.Digest() != tab.Digest() {
				t.Errorf("%s.%s is lost in an image", typ.Name(), field.Name)
			}
		}
	}
}

func setSomething(t *testing.T, v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *Protocol:
		*x = ZooKeeper
	case *EndReason:
		*x = Killed
	case *[]Identity:
		*x = []Identity{{"a", "b"}}
	case *Line:
		x.Record(1, answer("a"), true)
		x.Record(2, answer("b"), true)
		x.Ack(1)
	case *Value:
		*x = answer("another")
	default:
		switch {
		case v.Kind() == reflect.String:
			v.SetString(v.String() + "x")
		case v.CanUint():
			v.SetUint(v.Uint() + 77)
		case v.CanInt():
			v.SetInt(v.Int() + 77)
		case v.Kind() == reflect.Array:
			v.Index(3).SetUint(9)
		default:
			t.Fatalf("no value for a field of type %s", v.Type())
		}
	}
}

// Two replicas that came to the same state on different ways have the same
// digest and the same image; one that differs in anything has not.
func TestDigestDependsOnTheStateOnly(t *testing.T) {
	a, b := NewTable(), NewTable()
	for id := ID(1); id <= 1000; id++ {
		mustOpen(t, a, newSession(id))
	}
	for id := ID(1000); id >= 1; id-- {
		mustOpen(t, b, newSession(id))
		if id%10 == 0 {
			b.Snapshot()
			b.Digest()
		}
	}
	for id := ID(1); id <= 1000; id += 2 {
		a.End(id, Closed, 5000, 0)
		b.Edit(1001 - id).Touched = 3
	}
	for id := ID(999); id >= 1 && id < 1000; id -= 2 {
		b.Edit(id)
		b.End(id, Closed, 5000, 0)
		a.Edit(1001 - id).Touched = 3
	}
	if a.Digest() != b.Digest() || !bytes.Equal(encode(t, a.Snapshot()), encode(t, b.Snapshot())) {
		t.Fatal("equal states differ in digest or image")
	}
	a.Edit(500).Line.Record(1, answer("x"), true)
	b.Edit(500).Line.Record(1, answer("y"), true)
	if a.Digest() == b.Digest() {
		t.Error("two answers to one write are not noticed")
	}
	mustCheck(t, a)
	mustCheck(t, b)
}

// The call itself must be short at any size: it copies page pointers.
func TestSnapshotCallCopiesPointersOfPagesOnly(t *testing.T) {
	tab := NewTable()
	const n = 20_000
	for id := ID(1); id <= n; id++ {
		mustOpen(t, tab, newSession(id))
	}
	tab.Digest()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	image := tab.Snapshot()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 8*n/50 {
		t.Errorf("a snapshot of %d sessions took %d bytes", n, used)
	}
	if image.Len() != n {
		t.Errorf("%d sessions in the image, want %d", image.Len(), n)
	}
}

func BenchmarkEditAfterSnapshot(b *testing.B) {
	tab := NewTable()
	const n = 100_000
	for id := ID(1); id <= n; id++ {
		mustOpen(b, tab, newSession(id))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%n == 0 {
			tab.Snapshot()
		}
		tab.Edit(ID(i%n+1)).Touched++
	}
}

func BenchmarkSnapshotCall(b *testing.B) {
	tab := NewTable()
	for id := ID(1); id <= 100_000; id++ {
		mustOpen(b, tab, newSession(id))
	}
	tab.Digest()
	b.ReportAllocs()
	for b.Loop() {
		tab.Snapshot()
	}
}

func BenchmarkEditAndDigest(b *testing.B) {
	tab := NewTable()
	for id := ID(1); id <= 1000; id++ {
		mustOpen(b, tab, newSession(id))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		tab.Edit(ID(i%1000+1)).Touched++
		tab.Digest()
	}
}
