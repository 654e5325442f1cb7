package session

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/zxid"
)

// plainTable is the slow and obvious table: maps of whole values, copied whole.
type plainTable struct {
	sessions map[ID]Session
	ended    []Ended
	servers  map[string]ServerLine
	requests map[string]Request
}

func (p *plainTable) copy() *plainTable {
	c := &plainTable{sessions: map[ID]Session{}, ended: slices.Clone(p.ended), servers: map[string]ServerLine{}, requests: maps.Clone(p.requests)}
	for id, s := range p.sessions {
		c.sessions[id] = *s.clone()
	}
	for name, l := range p.servers {
		l.past = slices.Clone(l.past)
		c.servers[name] = *l.clone()
	}
	return c
}

// table builds a Table of the same content from nothing.
func (p *plainTable) table(t *testing.T) *Table {
	tab := NewTable()
	for _, s := range p.copy().sessions {
		c := s.clone()
		c.dirty = false
		mustOpen(t, tab, c)
	}
	for _, e := range p.ended {
		tab.rememberEnded(&e)
	}
	for _, l := range p.copy().servers {
		tab.addServer(l.clone())
	}
	for _, r := range p.requests {
		if err := tab.Remember(&r); err != nil {
			t.Fatal(err)
		}
	}
	return tab
}

// pair is a table and its model, driven with the same random commands.
type pair struct {
	t     *testing.T
	rng   *rand.Rand
	tab   *Table
	plain *plainTable
	z     zxid.ID
	now   int64
}

func (p *pair) anyID() ID { return ID(p.rng.IntN(int(p.z)) + 1) }

func (p *pair) step() {
	p.z++
	p.now += int64(p.rng.IntN(5))
	switch p.rng.IntN(10) {
	case 0, 1:
		p.open()
	case 2:
		p.end()
	case 3:
		p.boot()
	case 4:
		p.request()
	case 5:
		n := p.tab.ForgetRequests(p.now)
		before := len(p.plain.requests)
		maps.DeleteFunc(p.plain.requests, func(_ string, r Request) bool { return r.End < p.now })
		if before-len(p.plain.requests) != n {
			p.t.Fatalf("%d requests forgotten, want %d", n, before-len(p.plain.requests))
		}
	case 6:
		p.serverWrite()
	default:
		p.write()
	}
}

func (p *pair) open() {
	identity := ""
	if p.rng.IntN(2) == 0 {
		identity = fmt.Sprint("client-", p.rng.IntN(20))
	}
	s := newSession(ID(p.z))
	s.Identity, s.Opened = identity, p.now
	held := ID(0)
	for _, o := range p.plain.sessions {
		if identity != "" && o.Identity == identity {
			held = o.ID
		}
	}
	if got := p.tab.ByIdentity(identity); (got != nil) != (held != 0) || got != nil && got.ID != held {
		p.t.Fatalf("identity %q: %v, want %s", identity, got, held)
	}
	if err := p.tab.Open(s); (err != nil) != (held != 0) {
		p.t.Fatalf("open for %q held by %s: %v", identity, held, err)
	}
	if held == 0 {
		c := *newSession(ID(p.z))
		c.Identity, c.Opened, c.Generation = identity, p.now, 1
		p.plain.sessions[c.ID] = c
	}
}

func (p *pair) end() {
	id := p.anyID()
	got := p.tab.End(id, Expired, p.z, p.now)
	s, ok := p.plain.sessions[id]
	if ok != (got != nil) {
		p.t.Fatalf("end of %s: %v, want %v", id, got, ok)
	}
	if ok {
		delete(p.plain.sessions, id)
		p.plain.ended = append(p.plain.ended, Ended{ID: id, Next: s.Line.Next(), Reason: Expired, Zxid: p.z, Time: p.now, Timeout: 10 * time.Second})
	}
}

func (p *pair) write() {
	id := p.anyID()
	s, ok := p.plain.sessions[id]
	e := p.tab.Edit(id)
	if ok != (e != nil) {
		p.t.Fatalf("edit of %s: %v, want %v", id, e != nil, ok)
	}
	if !ok {
		return
	}
	v, ack, keep := answer(fmt.Sprint("r", p.z)), s.Line.Next()-min(s.Line.Next(), uint64(p.rng.IntN(9))), p.rng.IntN(8) > 0
	for _, l := range []*Line{&e.Line, &s.Line} {
		l.Record(l.Next(), v, keep)
		l.Ack(ack)
	}
	e.Touched, s.Touched = uint64(p.z), uint64(p.z)
	p.plain.sessions[id] = s
}

func (p *pair) boot() {
	name, nonce := fmt.Sprint("n", p.rng.IntN(5)), uint64(p.rng.IntN(400))
	l, ok := p.plain.servers[name]
	got := p.tab.Boot(name, nonce)
	switch {
	case ok && l.Boot == nonce:
		if got != BootRepeated {
			p.t.Fatalf("boot %d again: %d", nonce, got)
		}
		return
	case slices.Contains(l.past, nonce):
		if got != BootStale {
			p.t.Fatalf("old boot %d: %d", nonce, got)
		}
		return
	case got != Booted:
		p.t.Fatalf("new boot %d: %d", nonce, got)
	}
	past := l.past
	if ok {
		past = append(slices.Clone(past), l.Boot)
		past = past[max(0, len(past)-maxPastBoots):]
	}
	p.plain.servers[name] = ServerLine{Server: name, Boot: nonce, past: past}
}

func (p *pair) serverWrite() {
	name := fmt.Sprint("n", p.rng.IntN(5))
	l, ok := p.plain.servers[name]
	e := p.tab.EditServerLine(name)
	if ok != (e != nil) {
		p.t.Fatalf("server %s: %v, want %v", name, e != nil, ok)
	}
	if ok {
		e.Line.Record(e.Line.Next(), answer("s"), true)
		l.Line.Record(l.Line.Next(), answer("s"), true)
		p.plain.servers[name] = l
	}
}

func (p *pair) request() {
	id, hash := fmt.Sprint("q", p.rng.IntN(300)), uint64(p.rng.IntN(2))
	end := p.now + int64(p.rng.IntN(100))
	old, known := p.plain.requests[id]
	r, err := p.tab.JudgeRequest(id, end, hash, p.now)
	if (r != nil) != (known && old.Hash == hash) || (err != nil) != (known && old.Hash != hash) {
		p.t.Fatalf("request %s: %v, %v, want %v", id, r, err, known)
	}
	if !known {
		r := Request{ID: id, End: end, Hash: hash, Value: answer(id)}
		p.plain.requests[id] = r
		if err := p.tab.Remember(&r); err != nil {
			p.t.Fatal(err)
		}
	}
}

// TestTableIsTheObviousOne drives a table and its model with random commands.
// Now and then it takes an image, goes on changing the table, and then compares
// the image with a table built from the model as it was at that moment.
func TestTableIsTheObviousOne(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	p := &pair{t: t, rng: seed.Rand(t), tab: NewTable(), plain: &plainTable{
		sessions: map[ID]Session{}, servers: map[string]ServerLine{}, requests: map[string]Request{},
	}}
	for range rounds {
		for range p.rng.IntN(60) {
			p.step()
		}
		image, plain := p.tab.Snapshot(), p.plain.copy()
		for range p.rng.IntN(60) {
			p.step()
		}
		built := plain.table(t)
		if built.Digest() != image.Digest() {
			t.Fatalf("the digest of the image is %#x, that of its content %#x", image.Digest(), built.Digest())
		}
		got := encode(t, image)
		if !bytes.Equal(got, encode(t, built.Snapshot())) {
			t.Fatal("the image is not what the table was")
		}
		mustCheck(t, p.tab)
		if p.rng.IntN(4) == 0 { // go on with a restored replica
			var err error
			if p.tab, err = Decode(bytes.NewReader(encode(t, p.tab.Snapshot())), readAnswer); err != nil {
				t.Fatal(err)
			}
		}
	}
}
