package cluster

import (
	"fmt"
	"testing"
	"time"
)

func TestWriteThroughAnyServerIsAppliedOnAll(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		for _, p := range w.peers {
			if _, err := w.create(p.Name, "/by-"+p.Name); err != nil {
				t.Fatalf("create through %s: %v", p.Name, err)
			}
			if !w.exists(p.Name, "/by-"+p.Name) {
				t.Errorf("%s answered before it had applied", p.Name)
			}
		}
		w.converged()
		for _, p := range w.peers {
			for _, q := range w.peers {
				if !w.exists(p.Name, "/by-"+q.Name) {
					t.Errorf("%s lacks what was created through %s", p.Name, q.Name)
				}
			}
		}
	})
}

func TestLoneWriteThroughFollowerDoesNotWaitForTheNextEntry(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		follower := w.followers()[0]
		time.Sleep(time.Second)
		for i := range 20 {
			start := time.Now()
			if _, err := w.create(follower, fmt.Sprintf("/n%d", i)); err != nil {
				t.Fatal(err)
			}
			// In fake time the network takes none; CommitTimeout is 50 ms and more.
			if took := time.Since(start); took > 10*time.Millisecond {
				t.Errorf("write %d through a follower took %v", i, took)
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
}
