package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is what goes wrong.
type Kind string

// The kinds of faults. "For a while" is the Lasts of a Step.
const (
	// Kill ends a server as kill -9 does, and starts it again after a while.
	Kill Kind = "kill"
	// KillInWrite kills a server during a write to its disk: what was written
	// stays, and nobody has heard of it.
	KillInWrite Kind = "kill in a write"
	// PowerLoss kills a server during a write to its disk, which is lost.
	PowerLoss Kind = "power loss"
	// PowerOff kills all servers within a moment, and starts them again.
	PowerOff Kind = "power off"
	// Restart stops a server in order, and starts it after a while.
	Restart Kind = "restart"
	// Wipe takes a server's disk away; it comes back as a new one.
	Wipe Kind = "wipe"
	// Remove takes a server out of the cluster as an operator does; it comes back
	// with an empty disk, and joins as a new one.
	Remove Kind = "remove"
	// Grow starts new servers, so that there are more, and an odd number.
	Grow Kind = "grow"
	// Shrink takes two servers out for good.
	Shrink Kind = "shrink"
	// Replace loses a machine for good, and lets a new one of another name take its
	// place.
	Replace Kind = "replace"
	// Move gives a server another address, with its disk or without.
	Move Kind = "move"
	// Turn makes a voter of an observer, or an observer of it again.
	Turn Kind = "turn"
	// Freeze makes a server stand still for a while, as SIGSTOP does.
	Freeze Kind = "freeze"
	// Isolate cuts a server off from all others and all clients.
	Isolate Kind = "isolate"
	// Cut makes nothing pass between two servers.
	Cut Kind = "cut"
	// CutOneWay makes nothing pass from one server to another.
	CutOneWay Kind = "cut one way"
	// Halve cuts the servers in two groups.
	Halve Kind = "halve"
	// Lag makes a link between two servers slow.
	Lag Kind = "lag"
	// Reset breaks all connections of a server.
	Reset Kind = "reset"
	// SlowDisk makes each write of a server take its time.
	SlowDisk Kind = "slow disk"
	// StallDisk holds the disk of a server up, for less than it endures.
	StallDisk Kind = "stall disk"
	// HangDisk holds the disk of a server up until it has ended itself.
	HangDisk Kind = "hang disk"
	// StepClock moves the wall clock of a server, forward or back.
	StepClock Kind = "step clock"
	// Transfer moves the leadership.
	Transfer Kind = "transfer"
	// Transfers moves the leadership again and again for a while.
	Transfers Kind = "transfers"
	// Snapshot makes a server write a snapshot.
	Snapshot Kind = "snapshot"
	// Bulk writes more than a log keeps, so that who is away needs a snapshot.
	Bulk Kind = "bulk"
	// Scramble repeats and reorders what a server forwards for a while.
	Scramble Kind = "scramble"
	// LoseReports loses reports of sessions between a server and the leader.
	LoseReports Kind = "lose reports"
	// SlowApply makes a server apply late for a while.
	SlowApply Kind = "slow apply"
	// CutClient cuts a client off from one server.
	CutClient Kind = "cut client"
	// PauseClient stops the process of a client: it does not see time pass.
	PauseClient Kind = "pause client"
	// LoseClient makes a client vanish, and another one come.
	LoseClient Kind = "lose client"
	// EndSession ends the session of a client by another one of its identity.
	EndSession Kind = "end session"
)

// Leader in place of a server's number is the one that leads at that moment.
const Leader = -1

// Step is one fault of a schedule.
type Step struct {
	At    time.Duration // since the beginning
	Lasts time.Duration // until it is whole again; without a meaning for some
	Kind  Kind
	A, B  int // servers, or a client
	// Size is how much: of a clock's step, a link's or a disk's delay.
	Size time.Duration
}

func (s Step) String() string {
	return fmt.Sprintf("%8.1fs %-16s %2d %2d for %.1fs, %s", s.At.Seconds(), s.Kind, s.A, s.B, s.Lasts.Seconds(), s.Size)
}

// chance says how often a kind happens and how long it lasts, in paces.
type chance struct {
	kind          Kind
	weight        int
	least, most   float64
	smallest, big float64 // Size, in paces
}

var chances = []chance{
	{Kill, 10, 0.1, 30, 0, 0},
	{KillInWrite, 8, 0.1, 20, 0, 0},
	{PowerLoss, 8, 0.1, 20, 0, 0},
	{PowerOff, 2, 0.1, 10, 0, 0},
	{Restart, 6, 0.1, 10, 0, 0},
	{Wipe, 3, 0.1, 5, 0, 0},
	{Remove, 3, 0.1, 5, 0, 0},
	{Grow, 6, 0, 0, 0, 0},
	{Shrink, 4, 0.1, 20, 0, 0},
	{Replace, 2, 0.1, 5, 0, 0},
	{Move, 3, 0.1, 10, 0, 0},
	{Turn, 3, 0.1, 5, 0, 0},
	{Freeze, 8, 0.3, 30, 0, 0},
	{Isolate, 8, 0.3, 40, 0, 0},
	{Cut, 6, 0.3, 40, 0, 0},
	{CutOneWay, 6, 0.3, 40, 0, 0},
	{Halve, 4, 0.3, 40, 0, 0},
	{Lag, 6, 1, 40, 0.01, 0.6},
	{Reset, 4, 0, 0, 0, 0},
	{SlowDisk, 5, 2, 30, 0.01, 0.8},
	{StallDisk, 5, 0.3, writeDeadline - 5, 0, 0},
	{HangDisk, 3, writeDeadline + 5, writeDeadline + 20, 0, 0},
	{StepClock, 4, 0, 0, 1, 1e7},
	{Transfer, 6, 0, 0, 0, 0},
	{Transfers, 2, 2, 20, 0, 0},
	{Snapshot, 8, 0, 0, 0, 0},
	{Bulk, 2, 0, 0, 0, 0},
	{Scramble, 8, 2, 60, 0, 0},
	{LoseReports, 5, 5, 100, 0, 0},
	{SlowApply, 4, 1, 20, 0.01, 0.5},
	{CutClient, 6, 1, 70, 0, 0},
	{PauseClient, 5, 1, 70, 0, 0},
	{LoseClient, 5, 0, 0, 0, 0},
	{EndSession, 4, 0, 0, 0, 0},
}

const (
	meanGap = 8.0 // paces between two faults, when there is trouble
	lull    = 80  // paces without any
)

// Plan is the schedule that a configuration's seed gives. It depends on nothing
// else but the numbers of the configuration.
func Plan(c Config) []Step {
	c.Plan = []Step{} // it is what is being made
	c = c.withDefaults()
	rnd := rand.New(rand.NewPCG(c.Seed, 1))
	may := slices.DeleteFunc(slices.Clone(chances), func(x chance) bool {
		return c.Kinds != nil && !slices.Contains(c.Kinds, x.kind) || !c.possible(x.kind)
	})
	plan := []Step{}
	at := 5.0 // paces
	for len(may) > 0 {
		at += rnd.ExpFloat64() * meanGap
		if rnd.IntN(20) == 0 {
			at += lull * rnd.Float64()
		}
		if c.paces(at) >= c.Length {
			break
		}
		plan = append(plan, c.step(rnd, may, at))
	}
	return plan
}

// possible says that there are machines for a fault.
func (c Config) possible(k Kind) bool {
	switch k {
	case Grow, Shrink, Replace:
		return c.Spares > 0
	case Turn:
		return c.Observers > 0
	default:
		return true
	}
}

// step draws one fault.
func (c Config) step(rnd *rand.Rand, may []chance, at float64) Step {
	x := pick(rnd, may)
	s := Step{At: c.paces(at), Kind: x.kind, Lasts: c.paces(between(rnd, x.least, x.most)), Size: c.paces(between(rnd, x.smallest, x.big))}
	s.A = rnd.IntN(c.hosts())
	s.B = (s.A + 1 + rnd.IntN(max(c.hosts()-1, 1))) % c.hosts()
	switch {
	case x.kind == StepClock && rnd.IntN(2) == 0:
		s.Size = -s.Size
	case x.kind == CutClient || x.kind == PauseClient || x.kind == LoseClient || x.kind == EndSession:
		s.A = rnd.IntN(c.Clients)
		s.B = rnd.IntN(c.hosts())
	case rnd.IntN(3) == 0: // leaders deserve more than their share
		s.A = Leader
	}
	return s
}

func pick(rnd *rand.Rand, from []chance) chance {
	sum := 0
	for _, x := range from {
		sum += x.weight
	}
	n := rnd.IntN(sum)
	for _, x := range from {
		if n -= x.weight; n < 0 {
			return x
		}
	}
	return from[0] // not reached
}

// between draws from a range of which the lower half of the magnitudes is as
// likely as the upper: short faults find other things than long ones.
func between(rnd *rand.Rand, least, most float64) float64 {
	x := rnd.Float64()
	return least + (most-least)*x*x*x
}

// describe is a schedule as text.
func describe(plan []Step) string {
	var b strings.Builder
	for _, s := range plan {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}
