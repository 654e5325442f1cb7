package lock

import (
	"encoding/json"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
)

// Party is one contender of a lock.
type Party struct {
	Node    string // path of its queue entry, or of its slot
	Owner   string // who it says it is
	Labels  map[string]string
	Value   []byte // what it has put there for others to read
	Role    string // "read" or "write" at a read-write lock, else ""
	Slot    int    // of a holder of a semaphore, else -1
	Pattern Pattern
	// Holds is set for those that hold the lock or, being first, are about to.
	Holds bool
	// Token is the fencing token of a holder, and of a mutex's waiter the one it
	// will have. It is 0 where it is not known: of the waiters of other locks,
	// and of foreign holders of a read-write lock.
	Token   fence.Token
	Session client.SessionID // 0 when it lingers
	Since   time.Time        // when it joined the queue
	// Acquired is when the lock was granted, where that is written down; zero
	// else.
	Acquired time.Time
	// LingersUntil is set when the holder's session has ended and its lock-delay
	// runs: the lock stays taken until then, a little longer at most.
	LingersUntil time.Time
}

// Roles of a Party.
const (
	RoleRead  = "read"
	RoleWrite = "write"
)

// card is the data of a queue entry or a slot.
type card struct {
	Owner    string            `json:"owner"`
	Since    time.Time         `json:"since"`
	Labels   map[string]string `json:"labels,omitempty"`
	Acquired time.Time         `json:"acquired,omitzero"`
	// Token is written once the entry is set again after the grant: the zxid of
	// its last change is then no longer the token.
	Token fence.Token `json:"token,string,omitempty"`
	Value []byte      `json:"value,omitempty"`
	// Refuses says that the wait is to give way in a deadlock.
	Refuses bool `json:"refuseDeadlock,omitempty"`
}

func (o *options) card() card {
	return card{Owner: o.owner, Since: now(), Labels: o.labels, Value: o.value, Refuses: o.refuse}
}

// now is a time as a card has it.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func (c card) encode() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		return nil // strings, bytes and times: it does not fail
	}
	return b
}

// maxOwnerBytes bounds what is shown of foreign data.
const maxOwnerBytes = 128

// party describes the contender behind a node.
func party(node string, data []byte, stat client.Stat) Party {
	p := Party{
		Node: node, Slot: -1, Pattern: PatternOther, Role: shownRole(roleOf(node)),
		Session: stat.EphemeralOwner, Since: time.UnixMilli(stat.Ctime),
	}
	if e, ok := parseEntry(path.Base(node)); ok {
		p.Pattern = e.pattern
	}
	if stat.Kind == client.TTL {
		p.LingersUntil = time.UnixMilli(stat.Mtime).Add(stat.TTL)
	}
	var c card
	if json.Unmarshal(data, &c) != nil || c.Owner == "" {
		c = card{Owner: foreignOwner(data)}
	}
	p.Owner, p.Labels, p.Value = c.Owner, c.Labels, c.Value
	p.Token, p.Acquired = granted(roleOf(node), c, stat)
	return p
}

// slotParty describes the holder of a slot.
func slotParty(node string, data []byte, stat client.Stat) Party {
	p := party(node, data, stat)
	p.Holds, p.Pattern = true, PatternCurator
	if n, ok := slotOf(path.Base(node)); ok {
		p.Slot = n
	}
	p.Token, p.Acquired = fence.Token(stat.Czxid), time.UnixMilli(stat.Ctime)
	var c card
	if json.Unmarshal(data, &c) == nil && !c.Since.IsZero() {
		p.Since = c.Since
	}
	return p
}

// granted is what an entry says of its grant. A read-write lock's token is the
// zxid of the change by which the grant was written down.
func granted(r role, c card, stat client.Stat) (fence.Token, time.Time) {
	shared := r == roleRead || r == roleWrite
	switch {
	case !shared && r != roleSlot:
		return fence.Token(stat.Czxid), c.Acquired
	case !shared || c.Acquired.IsZero():
		return 0, time.Time{}
	case c.Token == 0 && stat.Kind == client.Ephemeral:
		return fence.Token(stat.Mzxid), c.Acquired
	default:
		return c.Token, c.Acquired
	}
}

func shownRole(r role) string {
	switch r {
	case roleRead:
		return RoleRead
	case roleWrite:
		return RoleWrite
	default:
		return ""
	}
}

// foreignOwner is the text that other clients keep in their entries: kazoo its
// identifier, Curator an address. What is no text is not shown.
func foreignOwner(data []byte) string {
	s := string(data)
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return ""
	}
	if len(s) > maxOwnerBytes {
		s = strings.ToValidUTF8(s[:maxOwnerBytes], "") + "…"
	}
	return s
}
