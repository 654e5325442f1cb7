package sim

import (
	"cmp"
	"time"

	"github.com/coordd/coord/server"
)

// Config says what one run is. A zero field has the default named beside it.
type Config struct {
	// Seed decides all that is left to chance.
	Seed uint64
	// Servers is how many servers with a vote there are; 3.
	Servers int
	// Spares is how many servers may join later, as voters; none.
	Spares int
	// Observers is how many servers without a vote there are; none. Some clients know
	// no other servers.
	Observers int
	// Steady lets faults happen to one server at a time, and never to the leader: then
	// the first one has to lead to the end.
	Steady bool
	// Clients is how many clients make the load; 5.
	Clients int
	// Length is the simulated time for which things go wrong; 20 minutes.
	Length time.Duration
	// Pace is Raft's heartbeat and election timeout; 4 s. All times of a cluster
	// are in proportion to it, those of sessions too, so a run of 300 paces sees as
	// much at a pace of 4 s as at the 200 ms that servers have by default, and
	// costs less for each minute.
	Pace time.Duration
	// Kinds are the faults that may happen; nil: all of them.
	Kinds []Kind
	// Plan is a schedule to be used in place of the one that the seed gives.
	Plan []Step
	// Change may change a server's configuration before it starts.
	Change func(*server.Config)
	// Beside is what else happens, while all others do what they do; nil: nothing.
	Beside func(*world)
	// Slower is how much longer clients think at a time; nil: not.
	Slower func(at time.Duration) float64
	// Keep is where a run that fails leaves its history, logs and seed; a
	// directory in that for temporary files.
	Keep string
}

func (c Config) withDefaults() Config {
	c.Servers = cmp.Or(c.Servers, 3)
	c.Clients = cmp.Or(c.Clients, 5)
	c.Length = cmp.Or(c.Length, 20*time.Minute)
	c.Pace = cmp.Or(c.Pace, 4*time.Second)
	if c.Steady && c.Kinds == nil {
		c.Kinds = steadyKinds
	}
	if c.Plan == nil {
		c.Plan = Plan(c)
	}
	return c
}

// hosts is how many machines for servers there are.
func (c Config) hosts() int { return c.Servers + c.Spares + c.Observers }

// paces is a time in proportion to the pace.
func (c Config) paces(n float64) time.Duration { return time.Duration(n * float64(c.Pace)) }

// sessionTimeout is what clients ask for: as many paces as with the defaults.
func (c Config) sessionTimeout() time.Duration { return c.paces(50) }

// configure puts all times of a server into proportion.
func (c Config) configure(cfg *server.Config) {
	k := &cfg.Cluster
	cfg.ZooKeeper.Address = k.Name + zkPort
	k.Heartbeat, k.Election, k.Lease = c.Pace, c.Pace, c.Pace/2
	k.StableBeforeVote = c.paces(5)
	k.WriteDeadline = c.paces(writeDeadline)
	k.SnapshotLogSize = 1 << 20
	k.LogStore = "boltdb" // works in fake time
	k.DiskReserve = -1
	cfg.Session.Min, cfg.Session.Default, cfg.Session.Max = c.paces(10), c.sessionTimeout(), c.paces(1500)
}

// writeDeadline is how many paces a disk may hang.
const writeDeadline = 25
