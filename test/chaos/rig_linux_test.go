package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/test/internal/child"
	"github.com/coordd/coord/test/internal/freeport"
	"github.com/coordd/coord/test/internal/smalldisk"
	"github.com/coordd/coord/test/internal/tunnet"
)

// rig is a cluster of servers in processes of their own, with what is needed to
// hurt them.
type rig struct {
	t     *testing.T
	dir   string // stays if the test fails
	conf  string
	nodes []*node
	seed  uint64
	rnd   *rand.Rand // of the schedule; used by one goroutine

	badDisks bool   // see rigOptions
	logStore string // of the servers

	net    *tunnet.Network // nil: loopback
	oracle *tunnet.Host    // from where the test itself looks at servers; never disturbed

	began time.Time
	story *os.File // what was done to the cluster, and when
}

// rigOptions say what a rig is made of.
type rigOptions struct {
	servers  int
	network  bool   // each server is a host of its own
	badDisks bool   // servers may have a reason to end by themselves
	diskSize int64  // each server has a file system of its own; 0: a directory
	config   string // more lines of the configuration file
}

// timelineFile is in the directory of a rig.
const timelineFile = "timeline.txt"

// newRig prepares a cluster and starts it. It is stopped when the test ends.
func newRig(t *testing.T, seed uint64, o rigOptions) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "coord-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, conf: filepath.Join(dir, "coordd.yaml"), seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), began: time.Now(), badDisks: o.badDisks, logStore: "wal"}
	if r.story, err = os.Create(filepath.Join(dir, timelineFile)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.end)
	if *store != "" {
		r.logStore = *store
	} else if r.rnd.IntN(4) == 0 {
		r.logStore = "boltdb"
	}
	t.Logf("the log is kept in %s", r.logStore)
	r.tell("%s, seed %d, log in %s", t.Name(), seed, r.logStore)
	if o.network {
		r.connect()
	}
	var ports int
	if r.net == nil {
		ports = freeport.Range(t, 10*o.servers)
	}
	var peers []string
	for i := range o.servers {
		p := r.newNode(i, ports, o.diskSize)
		r.nodes = append(r.nodes, p)
		peers = append(peers, p.name+"="+p.peer)
	}
	text := "cluster:\n  name: chaos\n  bootstrap: auto\n  peers: [" + strings.Join(peers, ", ") + "]\ninsecure: true\n" + o.config
	if err := os.WriteFile(r.conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range r.nodes {
		p.start()
	}
	r.waitReady(time.Minute)
	return r
}

// connect makes the network.
func (r *rig) connect() {
	r.t.Helper()
	n, err := tunnet.New(r.seed)
	if err == nil {
		r.net = n
		r.oracle, err = n.Host("oracle")
	}
	if errors.Is(err, tunnet.ErrUnsupported) {
		r.t.Skip(err)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// host is a new one for a client; nil on loopback.
func (r *rig) host(name string) *tunnet.Host {
	r.t.Helper()
	if r.net == nil {
		return nil
	}
	h, err := r.net.Host(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

func (r *rig) newNode(i, ports int, diskSize int64) *node {
	r.t.Helper()
	name := fmt.Sprintf("n%d", i+1)
	p := &node{r: r, name: name, dataDir: filepath.Join(r.dir, name)}
	p.OnEnd = p.hasEnded
	if diskSize > 0 {
		d, err := smalldisk.New(filepath.Join(r.dir, name+"-disk"), diskSize)
		if errors.Is(err, smalldisk.ErrUnsupported) {
			r.t.Skip(err)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		p.disk, p.dataDir = d, filepath.Join(d.Dir(), "data")
	}
	ip, base := "127.0.0.1", ports+10*i
	if r.net != nil {
		p.host = r.host(name)
		ip, base = p.host.IP(), 7420
	}
	for i, address := range []*string{&p.grpc, &p.peer, &p.http, &p.zookeeper} {
		*address = fmt.Sprintf("%s:%d", ip, base+i)
	}
	return p
}

// tell writes a line of the story.
func (r *rig) tell(format string, args ...any) {
	fmt.Fprintf(r.story, "%9.3fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// end stops all servers, and keeps what a failed run has left.
func (r *rig) end() {
	if r.net != nil {
		r.net.Heal()
	}
	for _, p := range r.nodes {
		if p.disk != nil {
			_ = p.disk.Thaw() // a process that waits in a write cannot be killed
		}
		p.Kill()
		r.checkLog(p)
	}
	for _, p := range r.nodes {
		if p.disk != nil {
			if err := p.disk.Close(); err != nil {
				r.t.Error(err)
			}
		}
	}
	if r.net != nil {
		if err := r.net.Close(); err != nil {
			r.t.Error(err)
		}
	}
	if err := r.story.Close(); err != nil {
		r.t.Error(err)
	}
	if !r.t.Failed() && !*keep {
		if err := os.RemoveAll(r.dir); err != nil {
			r.t.Error(err)
		}
		return
	}
	r.t.Logf("what is left of this run is in %s (run again with COORD_SEED=%d)", r.dir, r.seed)
}

// checkLog fails the test if a server has panicked, or has ended by itself without
// a reason.
func (r *rig) checkLog(p *node) {
	text, _ := os.ReadFile(p.log())
	if gaveUp := p.gaveUp.Load(); gaveUp > 0 && !r.badDisks {
		r.t.Errorf("%s has ended by itself, %d times: %s", p.name, gaveUp, lastLine(string(text)))
	}
	for _, bad := range []string{"panic:", "fatal error:", "DATA RACE", "unexpected fault address"} {
		if i := strings.Index(string(text), bad); i >= 0 {
			r.t.Errorf("%s: %s", p.name, text[i:min(len(text), i+3000)])
		}
	}
}

func (r *rig) endpoints() []string {
	var out []string
	for _, p := range r.nodes {
		out = append(out, p.grpc)
	}
	return out
}

func (r *rig) zkAddresses() []string {
	var out []string
	for _, p := range r.nodes {
		out = append(out, p.zookeeper)
	}
	return out
}

// any is some node.
func (r *rig) any() *node { return r.nodes[r.rnd.IntN(len(r.nodes))] }

// few are as many nodes as the others can do without, or fewer, those given first:
// one of three, one or two of five.
func (r *rig) few(rnd *rand.Rand, first ...*node) []*node {
	for want := 1 + rnd.IntN((len(r.nodes)-1)/2); len(first) < want; {
		rest := r.others(first...)
		first = append(first, rest[rnd.IntN(len(rest))])
	}
	return first
}

// waitReady waits until every server votes and is ready. All must have been started.
func (r *rig) waitReady(limit time.Duration) {
	r.t.Helper()
	for _, p := range r.nodes {
		child.Poll(r.t, limit, "ready "+p.name, p.ready)
	}
}

// leader waits for a server that leads.
func (r *rig) leader() *node {
	r.t.Helper()
	var found *node
	child.Poll(r.t, time.Minute, "leader", func() error {
		for _, p := range r.nodes {
			if st, err := p.status(); err == nil && st.GetLeader() == p.name {
				found = p
				return nil
			}
		}
		return errors.New("nobody leads")
	})
	return found
}

// others are all nodes but those.
func (r *rig) others(not ...*node) (out []*node) {
	for _, p := range r.nodes {
		skip := false
		for _, q := range not {
			skip = skip || p == q
		}
		if !skip {
			out = append(out, p)
		}
	}
	return out
}

// sameDigests waits until all servers have applied the same, and returns what
// each says of its state, which must be the same, too.
func (r *rig) sameDigests() (map[string]string, error) {
	type state struct{ index, digest uint64 }
	out := map[string]string{}
	var last error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		seen, same := map[string]state{}, true
		last = nil
		for _, p := range r.nodes {
			st, err := p.status()
			if err != nil {
				last = fmt.Errorf("%s: %w", p.name, err)
				break
			}
			now := state{st.GetDigestIndex(), st.GetDigest()}
			seen[p.name] = now
			out[p.name] = fmt.Sprintf("%016x", now.digest)
			same = same && now == seen[r.nodes[0].name]
		}
		if last == nil && same {
			return out, nil
		}
		if last == nil {
			last = fmt.Errorf("states differ: %v", seen)
		}
	}
	return out, last
}
