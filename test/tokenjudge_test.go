package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
)

// holding is one token that somebody holds. Tokens of one mark compare.
type holding struct {
	mark  string
	token fence.Token
	// alone: nobody else holds a token of the mark at the same time.
	alone bool
	held  func() bool
	guard []client.Op
}

// tokenJudge sees each holding while it lasts, and says whether the tokens rise:
//
//   - in the eyes of a resource: a strict gate admits each token of those who hold
//     alone;
//   - in the order of the log: each holder writes its token in a transaction that
//     only the holder can make;
//   - in real time: who was granted before another asked has the smaller token.
type tokenJudge struct {
	t    testing.TB
	gate *fence.Gate

	mu      sync.Mutex
	seen    map[string][]sighting
	refused int // by the gate, and the holder was lost: it came too late
}

// sighting is one holding as it was seen.
type sighting struct {
	token        fence.Token
	alone        bool
	asked, given time.Time
	written      client.Zxid // of the guarded transaction, 0 if it was not made
}

func newTokenJudge(t testing.TB) *tokenJudge {
	return &tokenJudge{t: t, gate: fence.NewGate(fence.Strict()), seen: map[string][]sighting{}}
}

// judgeNode is where holders of a mark write.
func judgeNode(mark string) string { return "/judge-" + mark }

// pass takes down one holding, which must still be held if it is to count. It
// returns false if it was lost.
func (j *tokenJudge) pass(ctx context.Context, c *client.Client, h *holding, asked, given time.Time, write bool) bool {
	s := sighting{token: h.token, alone: h.alone, asked: asked, given: given}
	ok := true
	if h.alone {
		ok = j.admit(ctx, h)
	}
	if ok && write {
		s.written, ok = j.write(ctx, c, h)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen[h.mark] = append(j.seen[h.mark], s)
	return ok
}

func (j *tokenJudge) admit(ctx context.Context, h *holding) bool {
	err := j.gate.Admit(ctx, h.mark, h.token)
	if err == nil {
		return true
	}
	if !errors.Is(err, fence.ErrStale) {
		j.t.Error(err)
		return false
	}
	j.lost(h, err)
	return false
}

// lost fails the test unless the handle finds out that it was lost.
func (j *tokenJudge) lost(h *holding, why error) {
	j.mu.Lock()
	j.refused++
	j.mu.Unlock()
	for end := time.Now().Add(20 * time.Second); h.held(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			j.t.Errorf("%s: token %s is held and was refused: %v", h.mark, h.token, why)
			return
		}
	}
}

func (j *tokenJudge) write(ctx context.Context, c *client.Client, h *holding) (client.Zxid, bool) {
	ops := append(slices.Clone(h.guard), client.OpSet(judgeNode(h.mark), fmt.Append(nil, h.token), client.AnyVersion))
	r, err := c.Txn(ctx, ops...)
	if err == nil {
		return r[len(r)-1].Stat.Mzxid, true
	}
	if errors.Is(err, client.ErrBadVersion) || errors.Is(err, client.ErrNoNode) {
		j.lost(h, err)
	}
	return 0, false
}

// verdict fails the test if the tokens of a mark did not rise. It returns how
// many there were.
func (j *tokenJudge) verdict() (counts map[string]int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	counts = map[string]int{}
	for _, mark := range slices.Sorted(maps.Keys(j.seen)) {
		all := j.seen[mark]
		counts[mark] = len(all)
		for _, check := range []func([]sighting) error{distinct, inRealTime, inTheLog} {
			if err := check(slices.Clone(all)); err != nil {
				j.t.Errorf("%s: %v", mark, err)
			}
		}
	}
	return counts
}

func distinct(all []sighting) error {
	seen := map[fence.Token]bool{}
	for _, s := range all {
		if s.token == 0 || seen[s.token] {
			return fmt.Errorf("token %s was given twice", s.token)
		}
		seen[s.token] = true
	}
	return nil
}

// inRealTime compares each with all that had been granted before it was asked for.
func inRealTime(all []sighting) error {
	byGiven := slices.Clone(all)
	slices.SortFunc(byGiven, func(a, b sighting) int { return a.given.Compare(b.given) })
	slices.SortFunc(all, func(a, b sighting) int { return a.asked.Compare(b.asked) })
	var most fence.Token
	for _, s := range all {
		for len(byGiven) > 0 && byGiven[0].given.Before(s.asked) {
			most = max(most, byGiven[0].token)
			byGiven = byGiven[1:]
		}
		if s.token <= most {
			return fmt.Errorf("token %s, asked for when %s had been granted", s.token, most)
		}
	}
	return nil
}

// inTheLog compares those that were written. Who holds alone is above everybody
// before, and below everybody after.
func inTheLog(all []sighting) error {
	all = slices.DeleteFunc(all, func(s sighting) bool { return s.written == 0 })
	slices.SortFunc(all, func(a, b sighting) int { return int(int64(a.written) - int64(b.written)) })
	var most, mostAlone fence.Token
	for _, s := range all {
		if s.token <= mostAlone || s.alone && s.token <= most {
			return fmt.Errorf("token %s was written at %s, behind %s", s.token, s.written, most)
		}
		if most = max(most, s.token); s.alone {
			mostAlone = s.token
		}
	}
	return nil
}

// TestTokenJudgeFindsWhatIsWrong: a judge that finds nothing proves nothing.
func TestTokenJudgeFindsWhatIsWrong(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	for _, c := range []struct {
		name  string
		check func([]sighting) error
		wrong bool
		all   []sighting
	}{
		{"two of a number", distinct, true, []sighting{{token: 3}, {token: 4}, {token: 3}}},
		{"none of a number", distinct, false, []sighting{{token: 3}, {token: 5}, {token: 4}}},
		{"later and smaller", inRealTime, true, []sighting{{token: 5, asked: at(1), given: at(2)}, {token: 4, asked: at(3), given: at(4)}}},
		{"overlapping", inRealTime, false, []sighting{{token: 5, asked: at(1), given: at(4)}, {token: 4, asked: at(3), given: at(5)}}},
		{"written behind", inTheLog, true, []sighting{{token: 5, alone: true, written: 1}, {token: 4, alone: true, written: 2}}},
		{"reader behind a writer", inTheLog, true, []sighting{{token: 5, alone: true, written: 1}, {token: 4, written: 2}}},
		{"writer behind a reader", inTheLog, true, []sighting{{token: 5, written: 1}, {token: 4, alone: true, written: 2}}},
		{"two readers", inTheLog, false, []sighting{{token: 2, alone: true, written: 1}, {token: 5, written: 3}, {token: 4, written: 4}}},
		{"not written", inTheLog, false, []sighting{{token: 5, alone: true, written: 1}, {token: 4, alone: true}}},
	} {
		if err := c.check(c.all); (err != nil) != c.wrong {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
