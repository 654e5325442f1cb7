package sim

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/internal/seed"
)

var (
	runsFlag = flag.Int("runs", 0, "how many random runs; 0: as many as make up the simulated time")
	soakFlag = flag.Duration("soak", 0, "for how long to make random runs")
	keepFlag = flag.String("keep", "", "where failing runs leave history, logs and seed")
)

const (
	// wanted is the simulated time of all random runs, and less with -short.
	wanted      = 10_000 * time.Minute
	wantedShort = 20 * time.Minute
	// runPaces is how long one of them is.
	runPaces      = 600
	runPacesShort = 100
)

func TestSameSeedGivesTheSameSchedule(t *testing.T) {
	for seed := range uint64(20) {
		c := Config{Seed: seed, Length: 2 * time.Hour}
		if one, two := Plan(c), Plan(c); !slices.Equal(one, two) || len(one) < 50 {
			t.Fatalf("seed %d: schedules of %d and %d steps, or different ones", seed, len(one), len(two))
		}
		if slices.Equal(Plan(c), Plan(Config{Seed: seed + 1, Length: 2 * time.Hour})) {
			t.Fatalf("seeds %d and %d give the same schedule", seed, seed+1)
		}
	}
}

// variant is the configuration of a random run. Most have slow clocks, which cost
// less for each minute; some have the times that servers have by default.
func variant(seed uint64) Config {
	rnd := rand.New(rand.NewPCG(seed, 2))
	c := Config{Seed: seed, Servers: 3, Clients: 3 + rnd.IntN(4), Pace: 15 * time.Second, Keep: *keepFlag}
	switch rnd.IntN(12) {
	case 0, 1:
		c.Servers = 5
	case 2: // it begins small
		c.Servers, c.Spares = 1, 4
	case 3, 4:
		c.Spares = 2
	case 5, 6:
		c.Observers = 1
	case 7:
		c.Spares, c.Observers, c.Steady = 2, 1, true
	}
	if rnd.IntN(20) == 0 {
		c.Pace = 200 * time.Millisecond
	}
	c.Length = c.paces(runPaces)
	if testing.Short() {
		c.Length = c.paces(runPacesShort)
	}
	return c
}

func TestRandomRunIsRepeatedByItsSeed(t *testing.T) {
	got := again(randomTest+"/runs/#01", Config{Seed: 7})
	if !strings.HasPrefix(got, "COORD_SEED=7 go test ") || !strings.Contains(got, "'^"+randomTest+"$' -runs 1") {
		t.Errorf("the command is %s", got)
	}
}

// tally adds up what runs have come to.
type tally struct {
	mu        sync.Mutex
	begun     int
	runs      int
	simulated time.Duration
	records   int
	observed  int
	happened  map[Kind]int
	each      []string // a line for each run
}

func (y *tally) add(o Outcome, line string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.runs++
	y.each = append(y.each, line)
	y.simulated += o.Simulated
	y.records += o.Records
	y.observed += o.AtObservers
	for k, n := range o.Happened {
		y.happened[k] += n
	}
}

// more says whether another run is wanted.
func (y *tally) more(began time.Time) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	switch {
	case *soakFlag > 0:
		return time.Since(began) < *soakFlag
	case *runsFlag > 0:
		y.begun++
		return y.begun <= *runsFlag
	case testing.Short():
		return y.simulated < wantedShort
	}
	return y.simulated < wanted
}

// TestRandomSchedules makes runs of one seed after the other, from COORD_SEED on, two
// at a time, until the wanted time is simulated.
func TestRandomSchedules(t *testing.T) {
	next := seed.New(t)
	total := &tally{happened: map[Kind]int{}}
	began := time.Now()
	var drawing sync.Mutex
	t.Run("runs", func(t *testing.T) {
		for range 2 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for total.more(began) && (*soakFlag > 0 || !t.Failed()) {
					drawing.Lock()
					mine := next
					next++
					drawing.Unlock()
					start := time.Now()
					out := Must(t, variant(mine))
					total.add(out, fmt.Sprintf("seed %d: %.0f simulated minutes, %d records, in %.1fs", mine, out.Simulated.Minutes(), out.Records, time.Since(start).Seconds()))
				}
			})
		}
	})
	t.Logf("%d runs, %.0f simulated minutes, %d records, %d of them from observers, in %s", total.runs, total.simulated.Minutes(),
		total.records, total.observed, time.Since(began).Round(time.Second))
	for _, line := range total.each { // not by the runs: a failure is all that they say
		t.Log(line)
	}
	for _, k := range slices.Sorted(maps.Keys(total.happened)) {
		t.Logf("%6d %s", total.happened[k], k)
	}
	if total.simulated < wanted || *runsFlag > 0 {
		return
	}
	for _, x := range chances {
		// What few runs have machines for is asked for by fixed schedules.
		if total.happened[x.kind] == 0 && (Config{}).possible(x.kind) {
			t.Errorf("in all runs there was no %s", x.kind)
		}
	}
	if total.observed == 0 {
		t.Error("in all runs no client was served by an observer")
	}
}
