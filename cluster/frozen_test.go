package cluster

import (
	"context"
	"testing"
	"time"
)

// A leader that is frozen answers nothing and refuses nothing. Questions to it
// must end when it is not taken for the leader any more, not with their timeout:
// who waits behind them would wait for longer than the election takes.
func TestFrozenLeaderDoesNotHoldUpReadsAndHeartbeats(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		old, f := w.leader(), w.followers()[0]
		n := w.node(f)
		c := w.open(f, time.Minute)
		time.Sleep(time.Second)
		for _, p := range w.peers {
			if p.Name != old {
				w.net.cut(old+":7421", p.Address)
			}
		}
		start := time.Now()
		read, beaten := make(chan error, 1), make(chan error, 1)
		n.Beat(c.id, c.generation, func(err error) { beaten <- err })
		go func() {
			ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
			defer cancel()
			read <- n.Linearize(ctx)
		}()
		w.eventually(5*time.Second, "another leader", func() bool { l := w.leader(); return l != "" && l != old })
		elected := time.Since(start)
		for what, ch := range map[string]chan error{"read": read, "heartbeat": beaten} {
			if err := <-ch; err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if took := time.Since(start); took > elected+300*time.Millisecond {
				t.Errorf("the %s took %v, the election %v", what, took, elected)
			}
		}
	})
}
