package cluster

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/internal/seed"
)

// lateVotes delays what candidates say, and says it again later: a request for a
// vote may arrive long after its election is decided.
type lateVotes struct {
	stop chan struct{} // closed at the end, when nothing is sent again any more

	mu    sync.Mutex // guards below
	rnd   *rand.Rand
	again int
}

func (l *lateVotes) wait(most time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.rnd.Int64N(int64(most)))
}

func (l *lateVotes) beforeSend(_ raft.ServerID, kind rpcKind) error {
	if kind == rpcVote || kind == rpcPreVote {
		time.Sleep(l.wait(60 * time.Millisecond))
	}
	return nil
}

func (l *lateVotes) afterAnswer(raft.ServerID, rpcKind) error { return nil }

// repeatVote implements voteRepeater: each request is sent twice more, at once
// and much later.
func (l *lateVotes) repeatVote(send func() error) {
	for _, most := range []time.Duration{30 * time.Millisecond, 3 * time.Second} {
		late := l.wait(most)
		go func() {
			select {
			case <-l.stop:
			case <-time.After(late):
				_ = send() // the transport may be closed by now
			}
		}()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again += 2
}

// failoverBound is how long a cluster of two survivors may be without a leader
// that can serve, although what candidates say to each other is late: a few
// rounds of elections with the default times.
const failoverBound = 5 * time.Second

// Two of three servers have a leader again, each time that the third one is
// killed, though requests for votes are late and come again.
func TestSurvivorsElectEachTimeALeaderIsKilled(t *testing.T) {
	failovers := 500
	if testing.Short() {
		failovers = 25
	}
	s := seed.New(t)
	votes := &lateVotes{rnd: rand.New(rand.NewPCG(s, 1))}
	rnd := rand.New(rand.NewPCG(s, 2))
	var longest, sum time.Duration
	inFakeTime(t, 3, func(c *Config) { c.transport = votes }, func(w *world) {
		votes.stop = make(chan struct{})
		defer close(votes.stop)
		w.start()
		w.awaitFormed()
		for n := range failovers {
			time.Sleep(time.Duration(rnd.Int64N(int64(500 * time.Millisecond))))
			old := w.awaitLeader()
			w.kill(old)
			began := time.Now()
			w.eventually(failoverBound, "another leader", func() bool { return w.leader() != "" })
			took := time.Since(began)
			longest, sum = max(longest, took), sum+took
			time.Sleep(time.Duration(rnd.Int64N(int64(200 * time.Millisecond))))
			w.start(old)
			if n%2 == 0 { // else the next leader dies while this one is just coming up
				w.awaitFormed()
			} else {
				w.eventually(20*time.Second, "the server is back", func() bool {
					s := w.node(old).Status()
					return s.Leader != "" && s.AppliedIndex > 0
				})
			}
		}
		w.awaitFormed()
		w.converged()
	})
	t.Logf("%d failovers: %v on average, %v at most; %d requests came again", failovers, sum/time.Duration(failovers), longest, votes.again)
	if votes.again < failovers {
		t.Errorf("only %d requests for votes came again", votes.again)
	}
}
