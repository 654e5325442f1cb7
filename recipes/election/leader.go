package election

import (
	"encoding/json"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
)

// Leader is who leads, as others see it. The zero Leader stands for none.
type Leader struct {
	Value   []byte // what it has proclaimed; the receiver's own copy
	Owner   string // who it says it is
	Token   fence.Token
	Session client.SessionID // whose end ends the leadership
	Node    string           // path of its queue entry
	Since   time.Time        // when it became the leader, by the cluster's clock
	Zxid    client.Zxid      // the transaction that made it so, or changed Value
	// Missed says, from Observe, that changes before this one may have been
	// missed.
	Missed bool
}

// None says that nobody leads.
func (l Leader) None() bool { return l.Session == 0 }

// same says that nothing has changed from l to o, for an observer.
func (l Leader) same(o Leader) bool {
	return l.Session == o.Session && l.Token == o.Token && l.Node == o.Node && string(l.Value) == string(o.Value)
}

// card is the data of the leader's znode.
type card struct {
	Owner string      `json:"owner"`
	Since time.Time   `json:"since"` // by the leader's clock, for people
	Node  string      `json:"node"`
	Token fence.Token `json:"token"`
	Value []byte      `json:"value"` // base64, null if there is none
}

// leaderOf reads the leader's znode. One that is not ephemeral names no leader.
func leaderOf(data []byte, stat client.Stat, z client.Zxid) Leader {
	if stat.EphemeralOwner == 0 {
		return Leader{Zxid: z}
	}
	l := Leader{Session: stat.EphemeralOwner, Since: time.UnixMilli(stat.Ctime), Zxid: z}
	var c card
	if json.Unmarshal(data, &c) == nil {
		l.Value, l.Owner, l.Token, l.Node = c.Value, c.Owner, c.Token, c.Node
	}
	return l
}
