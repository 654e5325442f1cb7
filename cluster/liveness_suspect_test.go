package cluster

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/cluster/peerpb"
)

// A session may be marked again while its mark is taken back for a sign of life.
// That sign must not be answered, because the new mark stands behind the removal
// in the log and the next leader would count from it. What else is in the report
// must not wait for that.
func TestSignIsNotAnsweredWhileItsSessionIsMarkedAgain(t *testing.T) {
	var losing, stuck atomic.Bool
	inFakeTime(t, 3, func(c *Config) {
		c.Faults.Report = func(bool) error {
			if losing.Load() {
				return errors.New("lost")
			}
			return nil
		}
		c.Faults.Apply = func(uint64) {
			for stuck.Load() {
				time.Sleep(5 * time.Millisecond)
			}
		}
	}, func(w *world) {
		w.start()
		w.awaitFormed()
		losing.Store(true)
		defer stuck.Store(false)
		leader, at := w.leader(), w.node(w.followers()[0])
		quick, slow := w.open(at.cfg.Name, testTimeout), w.open(at.cfg.Name, 2*testTimeout)
		report := func(clients ...*client) *peerpb.ReportReply {
			req := &peerpb.ReportRequest{Term: at.Status().Term, Id: at.ServerID(), Boot: at.Boot()}
			for _, c := range clients {
				req.Heard = append(req.Heard, &peerpb.HeardSession{Session: uint64(c.id), Generation: c.generation})
			}
			rep := w.node(leader).handleReport(w.t.Context(), at.id, req)
			if rep.GetRefused() != "" {
				t.Fatalf("the report was refused: %s", rep.GetRefused())
			}
			return rep
		}
		time.Sleep(testTimeout * 9 / 10)
		if !w.suspect(leader, quick.id) || !w.suspect(leader, slow.id) {
			t.Fatal("the sessions are not both under suspicion: nothing is tested")
		}
		stuck.Store(true)
		time.AfterFunc(testTimeout/2, func() { stuck.Store(false) }) // until one of them is marked again
		if got := report(quick, slow).GetDropped(); !slices.Equal(got, []uint64{uint64(quick.id)}) {
			t.Errorf("dropped %v, want the one that was marked again, %d", got, quick.id)
		}
		w.eventually(time.Second, "the new mark is in the table", func() bool { return w.suspect(leader, quick.id) })
		if w.suspect(leader, slow.id) {
			t.Error("the mark of the other session stands")
		}
		if got := report(quick, slow).GetDropped(); len(got) > 0 || w.suspect(leader, quick.id) {
			t.Errorf("reported once more: dropped %v, still suspect: %v", got, w.suspect(leader, quick.id))
		}
	})
}
