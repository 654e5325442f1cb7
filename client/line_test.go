package client

import (
	"testing"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/internal/seed"
)

// TestNumberLineModel drives a line with random submissions, answers, losses of
// the connection and withdrawals, against a server that follows the rule of the
// cluster: numbers come in order, without gaps, and each is answered once.
func TestNumberLineModel(t *testing.T) {
	r := seed.Rand(t)
	for range 200 {
		l := newLine()
		l.window = 1 + r.IntN(20)
		next := uint64(1) // of the cluster
		asked, numbered := 0, map[*call]bool{}
		var wire []uint64 // numbers offered on the present connection
		for range 300 {
			switch r.IntN(6) {
			case 0, 1:
				w := newWrite()
				w.fn = func(*call) {}
				w.size = 1 + r.IntN(batchBytes)
				l.waiting = append(l.waiting, &w.call)
				asked++
			case 2:
				var b batch
				l.fill(&b)
				for _, q := range b.reqs {
					wire = append(wire, q.Seq)
				}
				if b.bytes > batchBytes && len(b.reqs) > 1 {
					t.Fatalf("a batch of %d bytes", b.bytes)
				}
			case 3: // the cluster applies and answers what has come
				for len(wire) > 0 && r.IntN(4) > 0 {
					seq := wire[0]
					wire = wire[1:]
					if seq > next {
						t.Fatalf("number %d comes before %d", seq, next)
					}
					if seq == next {
						next++
					}
					if c := l.find(seq); c != nil {
						if numbered[c] {
							t.Fatalf("number %d answered twice", seq)
						}
						numbered[c] = true
						new(ended).add(c, &coordpb.Reply{Seq: seq}, nil, false)
						l.pop()
					}
				}
			case 4:
				l.reoffer()
				wire = nil
			case 5:
				if n := len(l.pending); n > 0 {
					if c := l.pending[r.IntN(n)]; !c.over {
						l.skip(c)
					}
				} else if len(l.waiting) > 0 {
					l.waiting[0].dropped = true
					asked--
				}
			}
			if len(l.pending) > l.window || l.offered > len(l.pending) || l.acked() >= next {
				t.Fatalf("pending %d, offered %d, acknowledged %d, next %d", len(l.pending), l.offered, l.acked(), next)
			}
		}
	}
}
