package fsm

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/coordd/coord/znode"
)

// An adversary holds every copy of every command in flight and applies, loses
// or repeats them in any order, more freely than any network or any change of
// leaders could. One client writes, gives up connections and opens new ones.
// Whatever happens: no write is done twice, none before an earlier one, and
// each answer is that of the write it is given for.
type adversary struct {
	t     *testing.T
	rnd   *rand.Rand
	r     *rig
	c     *client
	write []*Command         // by number, from 1
	first map[uint64]*Result // what the first doing answered
	bag   []*Command         // copies in flight
}

func TestAdversaryCannotBreakTheNumberLine(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 50
	}
	for seed := range rounds {
		a := &adversary{t: t, rnd: rand.New(rand.NewSource(int64(seed))), r: newRig(t), first: map[uint64]*Result{}}
		a.c = a.r.open(1)
		a.run(120)
		a.settle()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func (a *adversary) run(steps int) {
	for range steps {
		switch a.rnd.Intn(8) {
		case 0, 1:
			if len(a.write) < 12 {
				w := a.c.write(sequential("/w-"))
				a.write = append(a.write, w)
				a.offer(len(a.write))
			}
		case 2:
			if len(a.write) > 0 {
				a.offer(1 + a.rnd.Intn(len(a.write)))
			}
		case 3:
			if len(a.write) > 0 && a.rnd.Intn(3) == 0 {
				skip := *a.write[a.rnd.Intn(len(a.write))]
				skip.Kind, skip.Write, skip.Code = CmdSkip, nil, CodeCancelled
				a.bag = append(a.bag, &skip)
			}
		case 4:
			a.reconnect()
		default:
			a.deliver()
		}
	}
}

// offer puts a copy of write n, for the client's present connection, in flight.
func (a *adversary) offer(n int) {
	w := *a.write[n-1]
	w.Line.Generation = a.c.gen
	a.bag = append(a.bag, &w)
}

// reconnect opens the next connection; copies of its attach, and of older ones,
// stay in flight.
func (a *adversary) reconnect() {
	if a.c.gen > 5 {
		return
	}
	a.c.gen++
	at := attachOf(a.c, a.c.gen)
	for range 2 {
		a.bag = append(a.bag, a.r.onServer(&Command{Kind: CmdAttach, Attach: at}))
	}
}

// deliver applies a copy, which may stay in flight to be applied again, or
// loses it.
func (a *adversary) deliver() {
	if len(a.bag) == 0 {
		return
	}
	i := a.rnd.Intn(len(a.bag))
	c := a.bag[i]
	if a.rnd.Intn(3) > 0 {
		a.bag = append(a.bag[:i], a.bag[i+1:]...)
	}
	if c.Line.Session != 0 && a.rnd.Intn(4) == 0 {
		return
	}
	if c.Kind == CmdAttach && a.rnd.Intn(3) > 0 { // its server gives it another number
		again := *c
		again.Seq = a.r.m.state.Sessions.ServerLine(testServer).Line.Next()
		c = &again
	}
	a.apply(c)
}

func (a *adversary) apply(c *Command) *Result {
	before := a.c.session().Line.Next()
	res := a.r.one(c)
	if c.Line.Session == 0 {
		return res
	}
	switch res.Status {
	case StatusDone:
		if c.Seq != before || a.first[c.Seq] != nil {
			a.t.Errorf("number %d was done when %d was next", c.Seq, before)
		}
		a.first[c.Seq] = res
	case StatusRepeat:
		if w := a.first[c.Seq]; w == nil || w.Zxid != res.Zxid || w.Kind != res.Kind || fmt.Sprint(w.Err) != fmt.Sprint(res.Err) {
			a.t.Errorf("number %d: repeat says %+v, first was %+v", c.Seq, res, w)
		}
	case StatusGap:
		if c.Seq <= before {
			a.t.Errorf("number %d is no gap behind %d", c.Seq, before-1)
		}
	case StatusMoved:
		if c.Line.Generation == a.c.session().Generation {
			a.t.Errorf("number %d of the present generation was refused as moved", c.Seq)
		}
	default:
		a.t.Errorf("number %d: status %s", c.Seq, res.Status)
	}
	return res
}

// settle is the network at last behaving: the client attaches and offers
// everything in order, and each write has exactly one effect or was skipped.
func (a *adversary) settle() {
	a.c.gen += 10
	a.r.boots[testServer] = a.r.m.state.Sessions.ServerLine(testServer).Line.Next() - 1
	a.r.done(a.r.onServer(&Command{Kind: CmdAttach, Attach: attachOf(a.c, a.c.gen)}))
	for _, w := range a.write {
		w.Line.Generation = a.c.gen
		if res := a.apply(w); res.Status != StatusDone && res.Status != StatusRepeat {
			a.t.Errorf("number %d ended with %s", w.Seq, res.Status)
		}
	}
	made := 0
	for _, res := range a.first {
		if res.Kind == CmdWrite {
			made++
		}
	}
	names, _, err := a.r.m.state.Tree.Children("/", &znode.Caller{Trusted: true})
	if err != nil || len(names)-1 != made { // and /zookeeper
		a.t.Errorf("%d writes were done, the tree has %v (%v)", made, names, err)
	}
}
