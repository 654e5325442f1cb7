package session

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coord/internal/seed"
)

const second = time.Second

func seqOf(sessions ...*Session) func(yield func(*Session) bool) { return slices.Values(sessions) }

func TestSessionIsDueOnePercentAfterItsTimeout(t *testing.T) {
	e := NewExpiry()
	e.Track(1, 10*second, 0)
	e.Track(2, 2*second, 0)
	if got := e.Due(10*second + 100*time.Millisecond - 1); !slices.Equal(got, []ID{2}) {
		t.Errorf("just before: %v, want [2]", got)
	}
	if got := e.Due(10*second + 100*time.Millisecond); !slices.Equal(got, []ID{2, 1}) {
		t.Errorf("at timeout + 1 %%: %v, want [2 1], the longest overdue first", got)
	}
	e.Heard(2, 9*second)
	if got := e.Due(10 * second); len(got) != 0 {
		t.Errorf("heard since: %v, want none", got)
	}
	e.Forget(1)
	e.Forget(1)
	if got := e.Due(time.Hour); !slices.Equal(got, []ID{2}) {
		t.Errorf("after one is forgotten: %v, want [2]", got)
	}
}

func TestLateNewsNeverMakesASessionOlder(t *testing.T) {
	e := NewExpiry()
	e.Track(1, 10*second, 5*second)
	e.Heard(1, 2*second)
	e.Report(1, 4*second, 5*second, true)
	e.Report(1, -time.Hour, 5*second, true) // an age from the future
	if got, ok := e.SilentFor(1, 8*second); !ok || got != 3*second {
		t.Errorf("silent for %s, want 3 s", got)
	}
	if _, ok := e.SilentFor(2, 0); ok {
		t.Error("a session nobody tracks is silent for something")
	}
}

func TestProposedExpiryStopsCountingUntilDecided(t *testing.T) {
	e := NewExpiry()
	e.Track(1, 2*second, 0)
	e.Proposed(1)
	if got := e.Due(time.Hour); len(got) != 0 {
		t.Errorf("due again while proposed: %v", got)
	}
	if got := e.Report(1, 0, 3*second, true); got != Dropped {
		t.Errorf("a report while the expiry is proposed: %d, want dropped", got)
	}
	e.Heard(1, 3*second) // a command in the log counts all the same
	e.Unpropose(1)
	if got := e.Due(4 * second); len(got) != 0 {
		t.Errorf("due after the proposal was refused: %v, heard a second ago", got)
	}
	if got := e.Report(1, 0, 4*second, true); got != Counted {
		t.Errorf("a report after the proposal was refused: %d, want counted", got)
	}
	if got := e.Due(6*second + 20*time.Millisecond); !slices.Equal(got, []ID{1}) {
		t.Errorf("due once more: %v, want [1]", got)
	}
	if got := e.Report(99, 0, 0, true); got != Dropped {
		t.Errorf("a report of a session that is gone: %d, want dropped", got)
	}
}

func TestNewLeaderGivesAWholeTimeout(t *testing.T) {
	e := NewExpiry()
	e.Track(9, second, 0) // of an earlier leadership
	e.Reset(100*second, seqOf(&Session{ID: 1, Timeout: 4 * second}))
	if got := e.Due(104 * second); len(got) != 0 {
		t.Errorf("due before the timeout: %v", got)
	}
	if got := e.Due(104*second + 40*time.Millisecond); !slices.Equal(got, []ID{1}) {
		t.Errorf("due: %v, want [1]", got)
	}
}

// Only the server of the session's connection may lower what a new leader has
// assumed, and only its first word.
func TestOnlyTheOwnersFirstReportLowersTheNewLeadersView(t *testing.T) {
	e := NewExpiry()
	e.Reset(100*second, seqOf(&Session{ID: 1, Timeout: 4 * second}, &Session{ID: 2, Timeout: 4 * second}))
	silent := func(id ID) time.Duration { d, _ := e.SilentFor(id, 100*second); return d }
	e.Report(1, 3*second, 100*second, false)
	if silent(1) != 0 {
		t.Errorf("another server's word: silent for %s, want 0", silent(1))
	}
	e.Report(1, 3*second, 100*second, true)
	if silent(1) != 3*second {
		t.Errorf("the owner's word: silent for %s, want 3 s", silent(1))
	}
	if got := e.Due(101*second + 40*time.Millisecond); !slices.Equal(got, []ID{1}) {
		t.Errorf("due by the owner's word: %v, want [1]", got)
	}
	e.Report(1, 0, 100*second, true)
	e.Report(1, 3*second, 100*second, true)
	if silent(1) != 0 {
		t.Errorf("a later report made the session older: %s", silent(1))
	}
	e.Heard(2, 100*second) // a command was applied in this leadership
	e.Report(2, 3*second, 100*second, true)
	if silent(2) != 0 {
		t.Errorf("a report made an applied command undone: silent for %s", silent(2))
	}
}

func TestSilenceIsMarkedAtTwoFifthsAndThenByEighths(t *testing.T) {
	const timeout = 40 * second
	e := NewExpiry()
	e.Track(1, timeout, 0)
	e.Track(2, timeout, 0)
	e.Heard(2, 39*second)
	for _, at := range []time.Duration{16, 21, 26, 31, 36} {
		if got := e.Suspects(at*second - 1); len(got) != 0 {
			t.Errorf("just before %d s: %v", at, got)
		}
		if got := e.Suspects(at * second); !slices.Equal(got, []ID{1}) {
			t.Errorf("at %d s: %v, want [1]", at, got)
		}
		e.Suspect(1, at*second)
		if got := e.Suspects(at * second); len(got) != 0 {
			t.Errorf("twice at %d s: %v", at, got)
		}
	}
	e.Proposed(1)
	if got := e.Suspects(50 * second); len(got) != 0 {
		t.Errorf("while its expiry is proposed: %v", got)
	}
	e.Unpropose(1)
	if got := e.Suspects(50 * second); !slices.Equal(got, []ID{1}) {
		t.Errorf("after the expiry was refused: %v, want [1]", got)
	}
	if got := e.Suspects(55 * second); !slices.Equal(got, []ID{1, 2}) {
		t.Errorf("suspects: %v, want [1 2], the longest overdue first", got)
	}
}

func TestReportOfASuspectCountsOnlyAfterEveryMarkIsGone(t *testing.T) {
	e := NewExpiry()
	e.Track(1, 10*second, 0)
	report := func(want Count, when string) {
		t.Helper()
		if got := e.Report(1, 0, 7*second, true); got != want {
			t.Errorf("%s: %d, want %d", when, got, want)
		}
	}
	e.Suspect(1, 4*second)
	report(CountedSuspect, "marked")
	e.Suspect(1, 5*second)
	report(CountedSuspect, "marked again")
	e.Trust(1)
	report(Counted, "taken back")
	if got := e.Suspects(11*second - 1); len(got) != 0 {
		t.Errorf("suspect %v, heard less than 2/5 ago", got)
	}
	if got := e.Suspects(11 * second); !slices.Equal(got, []ID{1}) {
		t.Errorf("silent for 2/5 again: %v, want [1]", got)
	}
}

// A sign of life that is old does not make the next mark later than an eighth
// after the last: keys must not be too late. Nor sooner: a report of it, which
// asks for the removal of the mark, must have time for that.
func TestOldSignOfLifeKeepsTheTimeOfTheNextMark(t *testing.T) {
	e := NewExpiry()
	e.Track(1, 40*second, 0)
	e.Suspect(1, 30*second)
	e.Report(1, 29*second, 30*second, true) // 1 s after the start
	if got := e.Suspects(35*second - 1); len(got) != 0 {
		t.Errorf("less than an eighth after the last mark: %v", got)
	}
	if got := e.Suspects(35 * second); !slices.Equal(got, []ID{1}) {
		t.Errorf("an eighth after the last mark: %v, want [1]", got)
	}
	e.Trust(1)
	if got := e.Suspects(35 * second); !slices.Equal(got, []ID{1}) {
		t.Errorf("its mark is gone, its silence is not: %v, want [1]", got)
	}
}

func TestNewLeaderCountsFromWhatIsMarked(t *testing.T) {
	e := NewExpiry()
	e.Reset(100*second, seqOf(&Session{ID: 1, Timeout: 40 * second, Suspected: 30 * second}))
	if got, _ := e.SilentFor(1, 100*second); got != 30*second {
		t.Errorf("silent for %s, want 30 s", got)
	}
	if got := e.Suspects(105*second - 1); len(got) != 0 {
		t.Errorf("marked again before its silence has grown: %v", got)
	}
	if got := e.Suspects(105 * second); !slices.Equal(got, []ID{1}) {
		t.Errorf("an eighth later: %v, want [1]", got)
	}
	if got := e.Due(110*second + 400*time.Millisecond - 1); len(got) != 0 {
		t.Errorf("due too early: %v", got)
	}
	if got := e.Report(1, 0, 110*second, true); got != CountedSuspect {
		t.Errorf("a report of a session that the leader before has marked: %d, want counted as suspect", got)
	}
	e.Reset(100*second, seqOf(&Session{ID: 1, Timeout: 40 * second, Suspected: 20 * second}))
	e.Report(1, 35*second, 100*second, true)
	if got := e.Suspects(100 * second); !slices.Equal(got, []ID{1}) {
		t.Errorf("its server knows of more silence: %v, want [1]", got)
	}
}

// A client that is dead goes although no leader lasts for its timeout
// (etcd 9395: every election gave every lease its full time again), if only one
// lasts for the first mark and the others for one mark each.
func TestDeadSessionGoesThroughRepeatedElections(t *testing.T) {
	const timeout, tick = 10 * second, 50 * time.Millisecond
	for _, reigns := range [][]time.Duration{
		{timeout * 6 / 10},
		{timeout / 2},
		{timeout * 45 / 100},
		{timeout * 42 / 100, timeout * 14 / 100},
		{timeout / 8, timeout / 3, timeout/5*2 + tick, timeout/8 + tick},
	} {
		reign := func(i int) time.Duration { return reigns[min(i, len(reigns)-1)] }
		bound := timeout * 3 / 2
		for i := range reigns[:len(reigns)-1] {
			bound += reign(i) // not long enough to do much
		}
		silent := dieThrough(t, timeout, tick, 20, reign)
		if silent < timeout || silent > bound {
			t.Errorf("leaderships of %v: gone after %s of silence, want between %s and %s", reigns, silent, timeout, bound)
		}
	}
}

// dieThrough returns after which silence a session was expired, through so many
// leaderships; 0 if it lives on.
func dieThrough(t *testing.T, timeout, tick time.Duration, leaders int, reign func(int) time.Duration) time.Duration {
	tab := NewTable()
	mustOpen(t, tab, &Session{ID: 1, Timeout: timeout})
	now := time.Duration(0)
	for i := range leaders {
		e := NewExpiry()
		e.Reset(now, tab.All())
		for end := now + reign(i); now < end; now += tick {
			if len(e.Due(now)) > 0 {
				return now
			}
			for _, id := range e.Suspects(now) {
				silent, _ := e.SilentFor(id, now)
				e.Suspect(id, silent)
				s := tab.Edit(id)
				s.Suspected = max(s.Suspected, min(silent, timeout))
			}
			mustCheck(t, tab)
		}
	}
	return 0
}

func TestNobodyGrowsSilentWhileTheLeaderDoesNotRun(t *testing.T) {
	const tick = 50 * time.Millisecond
	var c ExpiryClock
	e := NewExpiry()
	e.Track(1, 2*second, c.Now())
	for range 10 {
		c.Advance(tick, tick)
	}
	e.Report(1, 0, c.Now(), true)
	now := c.Advance(10*time.Minute, tick) // the host was suspended
	if now != 12*tick {
		t.Errorf("the clock went to %s, want two ticks on: %s", now, 12*tick)
	}
	if got := e.Due(now); len(got) != 0 {
		t.Errorf("expired by a pause of the leader: %v", got)
	}
	if got := c.Advance(-time.Hour, tick); got != now {
		t.Errorf("the clock went back to %s", got)
	}
}

func TestMinTimeoutFollowsTheSessions(t *testing.T) {
	e := NewExpiry()
	if got := e.MinTimeout(); got != 0 {
		t.Errorf("without sessions: %s", got)
	}
	e.Track(1, 10*second, 0)
	e.Track(2, 4*second, 0)
	e.Track(3, 4*second, 0)
	steps := []struct {
		do   func()
		want time.Duration
	}{
		{func() {}, 4 * second},
		{func() { e.Forget(2) }, 4 * second},
		{func() { e.Track(3, 20*second, 0) }, 10 * second},
		{func() { e.Track(1, 30*second, 0) }, 20 * second},
		{func() { e.Forget(3) }, 30 * second},
	}
	for i, s := range steps {
		s.do()
		if got := e.MinTimeout(); got != s.want {
			t.Errorf("step %d: %s, want %s", i, got, s.want)
		}
	}
}

func TestShorterTimeoutCountsAtOnce(t *testing.T) {
	e := NewExpiry()
	e.Track(1, time.Hour, 0)
	e.Track(1, 2*second, second)
	if got := e.Due(3*second + 20*time.Millisecond); !slices.Equal(got, []ID{1}) {
		t.Errorf("due: %v, want [1]", got)
	}
}

// TestExpiryIsTheObviousOne compares the book with one that looks at every
// session each time.
func TestExpiryIsTheObviousOne(t *testing.T) {
	rng := seed.Rand(t)
	e := NewExpiry()
	plain := map[ID]*liveness{}
	now := time.Duration(0)
	steps := 20_000
	if testing.Short() {
		steps = 5_000
	}
	for range steps {
		now += time.Duration(rng.IntN(20)) * time.Millisecond
		id := ID(rng.IntN(50) + 1)
		stepBoth(t, e, plain, rng, id, now)
		var due, suspects []ID
		least := time.Duration(0)
		for id, l := range plain {
			if !l.proposed && now >= l.due() {
				due = append(due, id)
			}
			if !l.proposed && now >= l.doubtful() {
				suspects = append(suspects, id)
			}
			if least == 0 || l.timeout < least {
				least = l.timeout
			}
		}
		slices.Sort(due)
		slices.Sort(suspects)
		if got := e.Due(now); !slices.Equal(sorted(got), due) {
			t.Fatalf("due %v, want %v", got, due)
		}
		if got := e.Suspects(now); !slices.Equal(sorted(got), suspects) {
			t.Fatalf("suspects %v, want %v", got, suspects)
		}
		if e.MinTimeout() != least || e.Len() != len(plain) {
			t.Fatalf("least timeout %s of %d, want %s of %d", e.MinTimeout(), e.Len(), least, len(plain))
		}
		checkAgendas(t, e)
	}
}

func sorted(ids []ID) []ID { slices.Sort(ids); return ids }

func stepBoth(t *testing.T, e *Expiry, plain map[ID]*liveness, rng *rand.Rand, id ID, now time.Duration) {
	l := plain[id]
	if l == nil {
		if rng.IntN(3) == 0 {
			timeout := time.Duration(rng.IntN(900)+100) * time.Millisecond
			plain[id] = &liveness{id: id, timeout: timeout, heard: now}
			e.Track(id, timeout, now)
		}
		return
	}
	switch rng.IntN(10) {
	case 0:
		delete(plain, id)
		e.Forget(id)
	case 1:
		l.proposed = true
		e.Proposed(id)
	case 2:
		l.proposed = false
		e.Unpropose(id)
	case 3:
		silent, _ := e.SilentFor(id, now)
		l.suspect, l.marked = true, now-l.heard
		e.Suspect(id, silent)
	case 4:
		l.timeout = time.Duration(rng.IntN(900)+100) * time.Millisecond
		l.hear(now)
		e.Track(id, l.timeout, now)
	case 5:
		l.suspect, l.marked = false, 0
		e.Trust(id)
	default:
		age := time.Duration(rng.IntN(200)) * time.Millisecond
		got := e.Report(id, age, now, true)
		if want := countOf(l); got != want {
			t.Fatalf("a report of session %s: %d, want %d", id, got, want)
		}
		if got != Dropped {
			l.hear(now - age)
		}
	}
}

func countOf(l *liveness) Count {
	switch {
	case l.proposed:
		return Dropped
	case l.suspect:
		return CountedSuspect
	}
	return Counted
}

func checkAgendas(t *testing.T, e *Expiry) {
	for order := range e.agendas {
		a := &e.agendas[order]
		if len(a.heap) != len(e.sessions) {
			t.Fatalf("order %d has %d sessions of %d", order, len(a.heap), len(e.sessions))
		}
		for i, l := range a.heap {
			if l.place[order] != i || i > 0 && a.key(i) < a.key((i-1)/2) {
				t.Fatalf("order %d is broken at %d", order, i)
			}
		}
	}
	for _, l := range e.sessions {
		if l.key[byDue] > l.nextExpiry() || l.key[bySuspect] > l.nextSuspicion() {
			t.Fatalf("session %s would be looked at too late", l.id)
		}
	}
}

func hundredThousand() *Expiry {
	e := NewExpiry()
	for id := ID(1); id <= 100_000; id++ {
		e.Track(id, 10*second+time.Duration(id%1000)*time.Millisecond, time.Duration(id)*time.Microsecond)
	}
	return e
}

// Sessions that are heard in time cost a step of Due nothing, however many.
func TestDueLooksOnlyAtThoseWhoseTimeMayHaveCome(t *testing.T) {
	e := hundredThousand()
	if got := len(e.agendas[byDue].reached(9 * second)); got != 0 {
		t.Errorf("%d sessions looked at, none can be due", got)
	}
	for id := ID(1); id <= 100_000; id++ {
		e.Heard(id, 10*second)
	}
	e.Due(15 * second) // moves them all, once
	if got := len(e.agendas[byDue].reached(19 * second)); got != 0 {
		t.Errorf("%d sessions looked at again", got)
	}
}

func BenchmarkHeard100k(b *testing.B) {
	e := hundredThousand()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e.Heard(ID(i*7919%100_000+1), time.Duration(i)*time.Microsecond)
	}
}

// One second in the life of a leader of 100,000 sessions, each heard three
// times in its timeout of 10 s and looked for every 50 ms.
func BenchmarkSecondOfLeadership100k(b *testing.B) {
	e := hundredThousand()
	b.ReportAllocs()
	now := time.Duration(0)
	id := ID(0)
	for b.Loop() {
		for range 20 {
			now += 50 * time.Millisecond
			for range 1500 {
				id = id%100_000 + 1
				e.Report(id, 0, now, true)
			}
			if len(e.Due(now)) > 0 {
				b.Fatal("a live session is due")
			}
			e.Suspects(now)
		}
	}
}
