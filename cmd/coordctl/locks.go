package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

func newLocksCmd(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "locks [PATH]",
		Short: "List the locks that are held",
		Long: `List the locks at PATH (default /) and below: who holds them, with which fencing
token, and who waits. It also knows the locks of Curator, go-zookeeper and kazoo,
by the names of their znodes, and warns where such clients share one lock but do
not see each other.

HELD and OLDEST WAIT count from when the contender joined the line; nothing records
when a holder that waited came to the front. HOLDER says whether its session is
alive.`,
		Example: "  coordctl locks\n" +
			"  coordctl locks show /locks/nightly-report",
		Args:              withPath(cobra.MaximumNArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := "/"
			if len(args) == 1 {
				root = args[0]
			}
			return as("locks", e.listLocks(cmd.Context(), root))
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
	Client   string            `json:"client"` // whose names it uses: curator (also ours), kazoo, plain, other
	Since    string            `json:"since"`  // when it joined the line
	Session  string            `json:"session,omitempty"`
	Liveness string            `json:"liveness"` // ok, silent or unknown
	// Of the session, if it is known.
	SessionName string `json:"sessionName,omitempty"`
	Address     string `json:"address,omitempty"`
	Server      string `json:"server,omitempty"`
	TimeoutMs   int64  `json:"timeoutMs,omitempty"`
	LastHeardMs int64  `json:"lastHeardMs"` // ago; -1 unknown

	age time.Duration // in the line
}

// lockItem is one lock as scripts see it.
type lockItem struct {
	Path     string   `json:"path"`
	Type     string   `json:"type"`
	Holder   *party   `json:"holder"` // null: free
	Waiters  []party  `json:"waiters"`
	Warnings []string `json:"warnings,omitempty"`
}

func (e *env) listLocks(ctx context.Context, root string) error {
	sessions := e.sessionsByID(ctx)
	l := e.newLister("Lock", []string{"LOCK", "KIND", "HELD BY", "TOKEN", "HELD", "WAITING", "OLDEST WAIT", "HOLDER"},
		[]string{"SESSION", "ADDRESS", "NODE"})
	var warnings []string
	err := e.withMany(ctx, func(ctx context.Context, c *client.Client, answered func()) error {
		locks, err := findLocks(ctx, c, root, answered)
		if err != nil {
			return err
		}
		for _, p := range locks {
			info, err := lock.New(c, p).Inspect(ctx)
			if err != nil {
				return err
			}
			answered()
			item := newLockItem(&info, sessions)
			if item.Holder == nil {
				continue // given back meanwhile
			}
			for _, w := range item.Warnings {
				warnings = append(warnings, p+": "+w)
			}
			if err := l.add(item, item.row()...); err != nil {
				return err
			}
		}
		return l.close()
	})
	for _, w := range warnings {
		e.warn("WARNING: %s", w)
	}
	return err
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

// newLockItem joins a lock with the sessions.
func newLockItem(info *lock.Info, sessions map[string]*sessionItem) *lockItem {
	item := &lockItem{Path: info.Path, Type: "mutex", Waiters: []party{}, Warnings: info.Warnings}
	for i := range info.Holders {
		who := newParty(&info.Holders[i], sessions)
		item.Holder = &who
	}
	for i := range info.Waiters {
		item.Waiters = append(item.Waiters, newParty(&info.Waiters[i], sessions))
	}
	return item
}

func newParty(p *lock.Party, sessions map[string]*sessionItem) party {
	who := party{
		Node: p.Node, Token: p.Token.String(), Owner: p.Owner, Labels: p.Labels, Client: string(p.Pattern),
		Since: timestamp(p.Since.UnixMilli()), age: time.Since(p.Since), Liveness: "unknown", LastHeardMs: -1,
	}
	if p.Session != 0 {
		who.Session = p.Session.String()
	}
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
	name := p.Owner
	if name == "" {
		name = p.SessionName
	}
	if name == "" {
		name = dash(p.Session)
	}
	if p.Client == string(lock.PatternKazoo) {
		name = "(kazoo) " + name
	}
	return name
}

func (p *party) heard() string {
	if p.LastHeardMs < 0 {
		return "-"
	}
	return ago(time.Duration(p.LastHeardMs) * time.Millisecond)
}

func (p *party) liveness() string {
	if p.Liveness == "silent" && p.LastHeardMs >= 0 {
		return "SILENT " + p.heard()
	}
	return p.Liveness
}

func (i *lockItem) row() []string {
	oldest := "-"
	if len(i.Waiters) > 0 {
		oldest = ago(i.Waiters[0].age)
	}
	h := i.Holder
	return []string{
		i.Path, i.Type, h.name(), h.Token, ago(h.age), strconv.Itoa(len(i.Waiters)), oldest, h.liveness(),
		dash(h.Session), dash(h.Address), dash(h.Server),
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
