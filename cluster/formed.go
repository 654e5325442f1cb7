package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// formedFile, in the data directory, has the id of a cluster that was formed.
// Later the list of peers may be older than the membership: a cluster that was
// shrunk or moved to other servers has fewer voters in the list than a majority,
// and is formed all the same.
const formedFile = "FORMED"

// Formed returns nil once a majority of the listed peers have a vote, and else
// a *NotFormedError: until then nothing may be promised to a client, because a
// majority of the servers may know nothing of it. A cluster that was formed stays
// so, over restarts and changes of the membership too, and a server that joins
// it hears of it from the leader. Once nil it costs nothing.
func (n *Node) Formed() error {
	if n.formed.Load() {
		return nil
	}
	missing := n.cfg.withoutVote(n.voters())
	if len(n.cfg.Peers)-len(missing) > len(n.cfg.Peers)/2 {
		n.formed.Store(true)
		return nil
	}
	if w := n.form.reason(); w != "" {
		return &NotFormedError{w}
	}
	return &NotFormedError{"waiting for " + strings.Join(missing, ", ")}
}

// withoutVote are the names of the listed peers that are not among the voters.
func (c Config) withoutVote(voters []serverID) (missing []string) {
	votes := map[string]bool{}
	for _, v := range voters {
		votes[v.name()] = true
	}
	for _, p := range c.Peers {
		if !votes[p.Name] {
			missing = append(missing, p.Name)
		}
	}
	return missing
}

// wasFormed says whether the data directory belongs to a cluster that was formed.
func wasFormed(dir, cluster string) bool {
	b, err := os.ReadFile(filepath.Join(dir, formedFile))
	return err == nil && cluster != "" && strings.TrimSpace(string(b)) == cluster
}

// markFormed makes wasFormed true.
func markFormed(dir, cluster string) error {
	return writeFileDurably(filepath.Join(dir, formedFile), []byte(cluster+"\n"))
}

// keepFormed writes down that the cluster is formed, once it is.
func (f *formation) keepFormed() {
	n := f.node
	if f.kept || n.Formed() != nil || n.stores.cluster() == "" {
		return
	}
	err := markFormed(n.cfg.DataDir, n.stores.cluster())
	if f.kept = err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.log.Warn("cannot write down that the cluster is formed", "err", err)
	}
}
