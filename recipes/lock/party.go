package lock

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
)

// Party is one contender of a lock.
type Party struct {
	Node    string // path of its queue entry
	Owner   string // who it says it is
	Labels  map[string]string
	Token   fence.Token // its fencing token if it holds, or will hold, the lock
	Session client.SessionID
	Since   time.Time // when it joined the queue, by the cluster's clock
	Pattern Pattern
}

// card is the data of a queue entry.
type card struct {
	Owner  string            `json:"owner"`
	Since  time.Time         `json:"since"`
	Labels map[string]string `json:"labels,omitempty"`
}

func (o options) card(now time.Time) []byte {
	b, err := json.Marshal(card{o.owner, now.UTC().Truncate(time.Millisecond), o.labels})
	if err != nil {
		return nil // strings and a time: it does not fail
	}
	return b
}

// maxOwnerBytes bounds what is shown of foreign data.
const maxOwnerBytes = 128

// party describes the contender behind a queue entry.
func party(path string, e entry, data []byte, stat client.Stat) Party {
	p := Party{
		Node: path + "/" + e.name, Pattern: e.pattern, Token: fence.Token(stat.Czxid),
		Session: stat.EphemeralOwner, Since: time.UnixMilli(stat.Ctime),
	}
	var c card
	if json.Unmarshal(data, &c) == nil && c.Owner != "" {
		p.Owner, p.Labels = c.Owner, c.Labels
	} else {
		p.Owner = foreignOwner(data)
	}
	return p
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
