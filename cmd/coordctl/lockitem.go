package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// party is a holder or waiter as scripts see it.
type party struct {
	Node     string            `json:"node"`
	Token    string            `json:"token,omitempty"` // not known of waiters but a mutex's
	Owner    string            `json:"owner,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Client   string            `json:"client"`             // whose names it uses: curator (also ours), kazoo, plain, other
	Role     string            `json:"role,omitempty"`     // read or write, of a read-write lock
	Slot     *int              `json:"slot,omitempty"`     // of a semaphore's holder
	Since    string            `json:"since"`              // when it joined the line
	Acquired string            `json:"acquired,omitempty"` // when it was granted the lock, where that is written down
	Session  string            `json:"session,omitempty"`
	Liveness string            `json:"liveness"` // ok, silent, gone or unknown
	// LingersUntil is when a lock is free whose holder's session has ended: its
	// lock-delay.
	LingersUntil string `json:"lingersUntil,omitempty"`
	// Of the session, if it is known.
	SessionName string `json:"sessionName,omitempty"`
	Address     string `json:"address,omitempty"`
	Server      string `json:"server,omitempty"`
	TimeoutMs   int64  `json:"timeoutMs,omitempty"`
	LastHeardMs int64  `json:"lastHeardMs"` // ago; -1 unknown

	id      client.SessionID
	age     time.Duration // in the line, or of holding where that is known
	lingers time.Duration // what is left of the lock-delay
}

// lockItem is one lock as scripts see it.
type lockItem struct {
	Path    string  `json:"path"`
	Type    string  `json:"type"`            // mutex, rw or semaphore
	Limit   int     `json:"limit,omitempty"` // of a semaphore
	Holder  *party  `json:"holder"`          // null: free; the first of holders
	Holders []party `json:"holders"`         // several of a semaphore, and readers
	Waiters []party `json:"waiters"`
	// Together are the other locks that the holder has taken with this one, in one
	// transaction.
	Together []string `json:"together,omitempty"`
	// Deadlocks are the circles of waiting that the lock is part of.
	Deadlocks []deadlock `json:"deadlocks,omitempty"`
	Warnings  []string   `json:"warnings,omitempty"`
}

// newLockItem joins a lock with the sessions.
func newLockItem(info *lock.Info, sessions map[string]*sessionItem) *lockItem {
	item := &lockItem{
		Path: info.Path, Type: string(cmp.Or(info.Kind, lock.KindMutex)), Limit: info.Limit,
		Holders: []party{}, Waiters: []party{}, Warnings: info.Warnings,
	}
	for i := range info.Holders {
		item.Holders = append(item.Holders, newParty(&info.Holders[i], sessions))
	}
	if len(item.Holders) > 0 {
		item.Holder = &item.Holders[0]
	}
	for i := range info.Waiters {
		item.Waiters = append(item.Waiters, newParty(&info.Waiters[i], sessions))
	}
	return item
}

func newParty(p *lock.Party, sessions map[string]*sessionItem) party {
	who := party{
		Node: p.Node, Owner: p.Owner, Labels: p.Labels, Client: string(p.Pattern), Role: p.Role,
		Since: timestamp(p.Since.UnixMilli()), age: time.Since(p.Since), Liveness: "unknown", LastHeardMs: -1,
	}
	if p.Token != 0 {
		who.Token = p.Token.String()
	}
	if p.Slot >= 0 {
		who.Slot = &p.Slot
	}
	if p.Session != 0 {
		who.id, who.Session = p.Session, p.Session.String()
	}
	if !p.Acquired.IsZero() {
		who.Acquired, who.age = timestamp(p.Acquired.UnixMilli()), time.Since(p.Acquired)
	}
	if !p.LingersUntil.IsZero() {
		who.LingersUntil, who.lingers = timestamp(p.LingersUntil.UnixMilli()), time.Until(p.LingersUntil)
		who.Liveness = "gone"
	}
	if s := sessions[who.Session]; s != nil {
		who.joinSession(s)
	}
	return who
}

func (p *party) joinSession(s *sessionItem) {
	p.SessionName, p.Address, p.Server = s.Name, s.Address, s.Server
	p.TimeoutMs, p.LastHeardMs = s.TimeoutMs, s.LastHeardMs
	if p.Liveness = "ok"; s.silent() {
		p.Liveness = "silent"
	}
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
	switch {
	case p.Liveness == "silent" && p.LastHeardMs >= 0:
		return "SILENT " + p.heard()
	case p.Liveness == "silent":
		return "SILENT"
	case p.Liveness == "gone":
		return "GONE, free in " + ago(max(0, p.lingers))
	default:
		return p.Liveness
	}
}

// livenesses are the words for a party's session, the worst first.
var livenesses = []string{"silent", "gone", "unknown", "ok"}

// worst is the holder that is most likely to be in trouble.
func (i *lockItem) worst() *party {
	bad := func(p *party) int { return slices.Index(livenesses, p.Liveness) }
	worst := i.Holder
	for n := range i.Holders {
		if bad(&i.Holders[n]) < bad(worst) {
			worst = &i.Holders[n]
		}
	}
	return worst
}

// kind is the sort of lock for people.
func (i *lockItem) kind() string {
	if i.Type == string(lock.KindSemaphore) {
		return fmt.Sprintf("sem %d", i.Limit)
	}
	return i.Type
}

// heldBy names the holder, or counts them.
func (i *lockItem) heldBy() string {
	switch n := len(i.Holders); {
	case i.Type == string(lock.KindSemaphore):
		return fmt.Sprintf("%d of %d slots", n, i.Limit)
	case n == 0:
		return "-"
	case n == 1 && i.Holder.Role != "":
		return i.Holder.name() + " (" + i.Holder.Role + ")"
	case n == 1:
		return i.Holder.name()
	default:
		return plural(n, "reader")
	}
}

func (i *lockItem) row() []string {
	oldest := "-"
	if len(i.Waiters) > 0 {
		oldest = ago(i.Waiters[0].age)
	}
	cells := []string{i.Path, i.kind(), i.heldBy(), "-", "-", strconv.Itoa(len(i.Waiters)), oldest, "-", "-", "-", "-"}
	if i.Holder == nil {
		return cells
	}
	if h := i.Holder; len(i.Holders) == 1 && h.Slot == nil {
		cells[3], cells[4] = dash(h.Token), ago(h.age)
		cells[8], cells[9], cells[10] = dash(h.Session), dash(h.Address), dash(h.Server)
	}
	cells[7] = i.worst().liveness()
	return cells
}

// labelText is labels in one line, in order.
func labelText(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, fmt.Sprintf("%s=%s", k, labels[k]))
	}
	return strings.Join(out, " ")
}
