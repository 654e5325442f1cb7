package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
)

func newLocksCmd(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "locks [PATH]",
		Short: "List the locks that are held",
		Long: `List the locks at PATH (default /) and below: who holds them, with which fencing
token, and who waits. It also knows the locks of Curator, go-zookeeper and kazoo,
by the names of their znodes, and warns where such clients share one lock but do
not see each other.

HELD and OLDEST WAIT count from when the znode was created; nothing records when
a holder that waited came to the front. HOLDER says whether its session is alive.`,
		Example: "  coordctl locks\n" +
			"  coordctl locks show /locks/nightly-report",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := "/"
			if len(args) == 1 {
				root = args[0]
			}
			return e.listLocks(cmd.Context(), root)
		},
	}
	cmd.AddCommand(newLocksShowCmd(e))
	return cmd
}

// party is a holder or waiter as scripts see it.
type party struct {
	Node     string            `json:"node"`
	Token    string            `json:"token"`
	Owner    string            `json:"owner,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Client   string            `json:"client"` // family of names: curator or kazoo
	Since    string            `json:"since"`
	Session  string            `json:"session"`
	Liveness string            `json:"liveness"` // ok, silent or unknown
	// Of the session, if it is known.
	SessionName string `json:"sessionName,omitempty"`
	Address     string `json:"address,omitempty"`
	Server      string `json:"server,omitempty"`
	TimeoutMs   int64  `json:"timeoutMs,omitempty"`
	LastHeardMs int64  `json:"lastHeardMs,omitempty"` // ago; -1 unknown

	age time.Duration // of the znode
}

// lockItem is one lock as scripts see it.
type lockItem struct {
	Path    string  `json:"path"`
	Kind    string  `json:"kind"`
	Holder  *party  `json:"holder"` // null: free
	Waiters []party `json:"waiters"`
	// Mixed: clients that do not see each other share the lock.
	Mixed bool `json:"mixed"`
}

func (e *env) listLocks(ctx context.Context, root string) error {
	lines := map[string][]contender{}
	sessions := e.sessionsByID(ctx)
	l := e.newLister("Lock", []string{"LOCK", "KIND", "HELD BY", "TOKEN", "HELD", "WAITING", "OLDEST WAIT", "HOLDER"},
		[]string{"SESSION", "ADDRESS", "NODE"})
	var warn []string
	err := e.withMany(ctx, func(ctx context.Context, c *client.Client, answered func()) error {
		if err := findLines(ctx, c, root, lines, answered); err != nil {
			return err
		}
		for _, p := range slices.Sorted(maps.Keys(lines)) {
			line := lines[p]
			sortLine(line)
			if err := readData(ctx, c, line[:1], answered); err != nil {
				return err
			}
			item := newLockItem(p, line, sessions)
			if item.Mixed {
				warn = append(warn, p)
			}
			if err := l.add(item, item.row()...); err != nil {
				return err
			}
		}
		return l.close()
	})
	for _, p := range warn {
		e.note("%s", mixedWarning(p))
	}
	return as("locks", err)
}

func mixedWarning(p string) string {
	return "WARNING: " + p + ": kazoo and Curator-style clients share this lock. By default kazoo counts only znodes with " +
		"its own names and can hold the lock together with another client; extra_lock_patterns=('-lock-',) makes it wait."
}

// findLines collects the contenders of every lock at root and below. Nothing
// else is kept of the tree.
func findLines(ctx context.Context, c *client.Client, root string, lines map[string][]contender, answered func()) error {
	for n, err := range visit(ctx, c, root, -1, answered) {
		if err != nil {
			return err
		}
		if k, ok := newContender(&n); ok {
			parent := path.Dir(n.Path)
			lines[parent] = append(lines[parent], k)
		}
	}
	return nil
}

// readData reads the data of contenders, as far as they are still there and
// allow it.
func readData(ctx context.Context, c *client.Client, line []contender, answered func()) error {
	for i := range line {
		n, err := c.Get(ctx, line[i].path)
		switch {
		case err == nil:
			line[i].data = n.Data
		case !errors.Is(err, client.ErrNoNode) && !errors.Is(err, client.ErrNoAuth):
			return err
		}
		answered()
	}
	return nil
}

// sessionsByID are the live sessions. Without the permission to see them the
// locks can still be shown, so the failure is only noted.
func (e *env) sessionsByID(ctx context.Context) map[string]*sessionItem {
	all, err := e.allSessions(ctx)
	if err != nil {
		if _, code := classify(err); code == exitNotPermitted {
			e.note("who the holders are is not shown: %v", err)
		}
		return nil
	}
	by := make(map[string]*sessionItem, len(all))
	for i := range all {
		by[all[i].ID] = &all[i]
	}
	return by
}

// newLockItem joins a line in its order with the sessions.
func newLockItem(p string, line []contender, sessions map[string]*sessionItem) *lockItem {
	item := &lockItem{Path: p, Kind: "mutex", Waiters: []party{}, Mixed: mixed(line)}
	for i := range line {
		who := newParty(&line[i], sessions)
		if i == 0 {
			item.Holder = &who
			continue
		}
		item.Waiters = append(item.Waiters, who)
	}
	return item
}

func newParty(c *contender, sessions map[string]*sessionItem) party {
	who := party{
		Node: c.path, Token: strconv.FormatUint(uint64(c.stat.Czxid), 10), Client: c.family,
		Since: timestamp(c.stat.Ctime), age: time.Since(time.UnixMilli(c.stat.Ctime)),
		Session: c.stat.EphemeralOwner.String(), Liveness: "unknown", LastHeardMs: -1,
	}
	who.Owner, who.Labels = c.owner()
	s := sessions[who.Session]
	if s == nil {
		return who
	}
	who.SessionName, who.Address, who.Server = s.Name, s.Address, s.Server
	who.TimeoutMs, who.LastHeardMs = s.TimeoutMs, s.LastHeardMs
	if who.Liveness = "ok"; s.silent() {
		who.Liveness = "silent"
	}
	return who
}

// name is the best that is known about who it is.
func (p *party) name() string {
	switch {
	case p.Owner != "":
		return p.Owner
	case p.SessionName != "":
		return p.SessionName
	default:
		return p.Session
	}
}

func (p *party) heard() string {
	if p.LastHeardMs < 0 {
		return "-"
	}
	return ago(time.Duration(p.LastHeardMs) * time.Millisecond)
}

func (p *party) liveness() string {
	if p.Liveness == "silent" {
		return strings.TrimSpace("SILENT " + strings.TrimPrefix(p.heard(), "-"))
	}
	return p.Liveness
}

func (i *lockItem) row() []string {
	oldest := "-"
	if len(i.Waiters) > 0 {
		oldest = ago(i.Waiters[0].age)
	}
	kind := i.Kind
	if i.Mixed {
		kind += " MIXED"
	}
	h := i.Holder
	return []string{
		i.Path, kind, h.name(), h.Token, ago(h.age), strconv.Itoa(len(i.Waiters)), oldest, h.liveness(),
		h.Session, dash(h.Address), dash(h.Server),
	}
}

// labelText is labels in one line, in order.
func labelText(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, fmt.Sprintf("%s=%s", k, labels[k]))
	}
	return strings.Join(out, " ")
}
