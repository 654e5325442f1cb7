package sim

import (
	"testing"
	"time"
)

// fixed is a schedule that is always the same: one that broke a design, or a part
// of it, once.
type fixed struct {
	name  string
	plan  func(Config) []Step
	needs map[Kind]int // what must really have happened
}

// often repeats a step.
func often(n int, from, every time.Duration, s Step) (plan []Step) {
	for i := range n {
		s.At = from + time.Duration(i)*every
		plan = append(plan, s)
	}
	return plan
}

var fixedSchedules = []fixed{
	{
		// The answer to a report is lost as often as the report, so a client may
		// believe what the leader does not, and the other way round.
		name: "only reports are lost between a server and the leader",
		plan: func(c Config) []Step {
			return []Step{
				{At: c.paces(10), Lasts: c.paces(100), Kind: LoseReports, A: 0},
				{At: c.paces(130), Lasts: c.paces(100), Kind: LoseReports, A: 1},
				{At: c.paces(130), Lasts: c.paces(100), Kind: LoseReports, A: 2},
			}
		},
		needs: map[Kind]int{LoseReports: 3},
	},
	{
		name: "the leadership moves all the time",
		plan: func(c Config) []Step {
			return often(4, c.paces(10), c.paces(50), Step{Lasts: c.paces(40), Kind: Transfers})
		},
		needs: map[Kind]int{Transfers: 4},
	},
	{
		name: "a server is cut off while a snapshot is sent to it, and the leader dies",
		plan: func(c Config) (plan []Step) {
			for i := range 4 {
				at := c.paces(float64(10 + 60*i))
				plan = append(plan,
					Step{At: at, Lasts: c.paces(10), Kind: Kill, A: 1},
					Step{At: at + c.paces(1), Kind: Bulk},
					Step{At: at + c.paces(5), Kind: Snapshot, A: 0},
					Step{At: at + c.paces(5), Kind: Snapshot, A: 2},
					Step{At: at + c.paces(10.2), Lasts: c.paces(6), Kind: Cut, A: 1, B: 0},
					Step{At: at + c.paces(10.2), Lasts: c.paces(6), Kind: Cut, A: 1, B: 2},
					Step{At: at + c.paces(22), Lasts: c.paces(5), Kind: Kill, A: Leader},
				)
			}
			return plan
		},
		needs: map[Kind]int{Kill: 7, Bulk: 4, Snapshot: 6, Cut: 8},
	},
	{
		name: "a leader comes back whose successor's first write is slow",
		plan: func(c Config) (plan []Step) {
			for i := range 6 {
				at := c.paces(float64(10 + 45*i))
				plan = append(plan,
					Step{At: at, Lasts: c.paces(4), Kind: Isolate, A: Leader},
					Step{At: at + c.paces(0.1), Lasts: c.paces(30), Kind: SlowDisk, A: 0, Size: c.paces(0.5)},
					Step{At: at + c.paces(0.1), Lasts: c.paces(30), Kind: SlowDisk, A: 1, Size: c.paces(0.5)},
					Step{At: at + c.paces(0.1), Lasts: c.paces(30), Kind: SlowDisk, A: 2, Size: c.paces(0.5)},
				)
			}
			return plan
		},
		needs: map[Kind]int{Isolate: 6, SlowDisk: 18},
	},
	{
		name: "a clock a year ahead belongs to the leader",
		plan: func(c Config) (plan []Step) {
			plan = append(plan, Step{At: c.paces(5), Kind: StepClock, A: 1, Size: 365 * 24 * time.Hour})
			return append(plan, often(5, c.paces(10), c.paces(30), Step{Lasts: c.paces(3), Kind: Kill, A: Leader})...)
		},
		needs: map[Kind]int{StepClock: 1, Kill: 5},
	},
	{
		name: "all servers stand still together",
		plan: func(c Config) (plan []Step) {
			for i := range 4 {
				for server := range c.Servers {
					plan = append(plan, Step{At: c.paces(float64(10 + 60*i)), Lasts: c.paces(40), Kind: Freeze, A: server})
				}
			}
			return plan
		},
		needs: map[Kind]int{Freeze: 12},
	},
	{
		name: "everything that is forwarded is repeated and reordered, and leaders die",
		plan: func(c Config) []Step {
			plan := []Step{
				{At: c.paces(6), Lasts: c.paces(250), Kind: Scramble, A: 0},
				{At: c.paces(6), Lasts: c.paces(250), Kind: Scramble, A: 1},
				{At: c.paces(6), Lasts: c.paces(250), Kind: Scramble, A: 2},
			}
			return append(plan, often(8, c.paces(10), c.paces(28), Step{Lasts: c.paces(5), Kind: Kill, A: Leader})...)
		},
		needs: map[Kind]int{Scramble: 3, Kill: 8},
	},
	{
		name: "a disk is lost, and a server that lags comes back without the third",
		plan: func(c Config) (plan []Step) {
			for i := range 3 {
				at := c.paces(float64(10 + 90*i))
				plan = append(plan,
					Step{At: at, Lasts: c.paces(20), Kind: Cut, A: 1, B: 2},
					Step{At: at, Lasts: c.paces(20), Kind: Cut, A: 1, B: 0},
					Step{At: at + c.paces(0.1), Lasts: c.paces(1), Kind: Wipe, A: 2},
					Step{At: at + c.paces(15), Lasts: c.paces(30), Kind: Kill, A: 0},
				)
			}
			return plan
		},
		needs: map[Kind]int{Wipe: 3, Kill: 3},
	},
}

// TestSchedulesThatBrokeTheFirstDesign runs each of them under the whole load.
func TestSchedulesThatBrokeTheFirstDesign(t *testing.T) {
	if testing.Short() {
		t.Skip("whole clusters, for half a minute")
	}
	for _, f := range fixedSchedules {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			c := Config{Keep: *keepFlag}.withDefaults()
			c.Plan = f.plan(c)
			last := c.Plan[0]
			for _, s := range c.Plan {
				if s.At+s.Lasts > last.At+last.Lasts {
					last = s
				}
			}
			c.Length = last.At + last.Lasts + c.paces(5)
			out := Must(t, c)
			for kind, n := range f.needs {
				if out.Happened[kind] < n {
					t.Errorf("%s happened %d times, want %d: the schedule shows little", kind, out.Happened[kind], n)
				}
			}
		})
	}
}
