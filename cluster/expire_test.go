package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coordd/coord/session"
)

func TestExpireEndsALivingSessionAsSilenceDoes(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		t := w.t
		w.start()
		w.awaitFormed()
		leader, other := w.node(w.awaitLeader()), w.followers()[0]
		c, bystander := w.open(other, 10*time.Second), w.open(other, 10*time.Second)
		if r := c.send(ephemeralOp("/e")).wait(t, 5*time.Second); r.Err != nil {
			t.Fatal(r.Err)
		}
		for _, follower := range w.followers() {
			if err := w.node(follower).Expire(t.Context(), c.id); !errors.Is(err, ErrNotLeader) {
				t.Errorf("expire at %s: %v", follower, err)
			}
		}
		began := time.Now()
		if err := leader.Expire(t.Context(), c.id); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
		if w.exists(w.leader(), "/e") {
			t.Error("the ephemeral of the expired session is there")
		}
		if err := leader.Expire(t.Context(), c.id); !errors.Is(err, session.ErrExpired) {
			t.Errorf("expire again: %v", err)
		}
		if err := leader.Expire(t.Context(), 1<<40); !errors.Is(err, session.ErrUnknown) {
			t.Errorf("expire a session that never was: %v", err)
		}
		if n := w.sessions(w.leader()); n != 1 {
			t.Errorf("%d sessions are left, want that of the bystander, %s", n, bystander.id)
		}
	})
}

// TestExpireEndsWithItsContext: a leader that is alone waits for the others.
func TestExpireEndsWithItsContext(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		t := w.t
		w.start()
		w.awaitFormed()
		name := w.awaitLeader()
		c := w.open(name, 10*time.Second)
		for _, follower := range w.followers() {
			w.net.cut(w.hosts[name].peer.Address, w.hosts[follower].peer.Address)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := w.node(name).Expire(ctx, c.id); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("expire without a majority: %v", err)
		}
	})
}
