package coordtest

import (
	"errors"
	"slices"
	"strings"

	"github.com/coordd/coord/client"
)

// Paths lists the znodes whose paths begin with prefix, in order: what a test has
// left behind. It is what a linearizable read shows.
func (c *Cluster) Paths(prefix string) []string {
	c.t.Helper()
	ctx, cancel := patience()
	defer cancel()
	root := "/"
	if i := strings.LastIndexByte(prefix, '/'); i > 0 {
		root = prefix[:i]
	}
	var out []string
	for n, err := range c.eye().Walk(ctx, root) {
		if errors.Is(err, client.ErrNoNode) {
			return nil // the folder of prefix is not there
		}
		if err != nil {
			c.t.Fatalf("coordtest: look at %s: %v", root, err)
		}
		if strings.HasPrefix(n.Path, prefix) {
			out = append(out, n.Path)
		}
	}
	slices.Sort(out)
	return out
}

// eye is a client without a session, for looking at the cluster.
func (c *Cluster) eye() *client.Client {
	c.t.Helper()
	c.mu.Lock()
	eye := c.looker
	c.mu.Unlock()
	if eye != nil {
		return eye
	}
	ctx, cancel := patience()
	defer cancel()
	eye, err := client.Dial(ctx, c.Target(), append(c.DialOptions(), client.WithoutSession())...)
	if err != nil {
		c.t.Fatalf("coordtest: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looker = eye
	return eye
}
