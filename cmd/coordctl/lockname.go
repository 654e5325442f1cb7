package main

import (
	"cmp"
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strconv"
	"unicode"

	"github.com/coordd/coord/client"
)

// Families of clients that share the znodes of a lock. Members of one family
// see each other; between families a lock does not exclude by default.
const (
	curator = "curator" // Curator, go-zookeeper and this project's recipe
	kazoo   = "kazoo"
)

// lockNames are the names of the znodes in a lock's line. The number behind them
// has ten digits or more, and a sign once ZooKeeper's counter has wrapped.
var lockNames = []struct {
	family  string
	pattern *regexp.Regexp
}{
	{curator, regexp.MustCompile(`^(?:_c_[0-9A-Za-z-]+-)?lock-(-?[0-9]{9,19})$`)},
	{kazoo, regexp.MustCompile(`^[0-9a-f]{32}__lock__(-?[0-9]{9,19})$`)},
}

// contender is one znode in a lock's line.
type contender struct {
	path   string
	family string
	number int64
	stat   client.Stat
	data   []byte
}

// newContender recognises a znode of a lock's line: an ephemeral one with one of
// the names.
func newContender(n *client.Node) (contender, bool) {
	if n.Stat.Kind != client.Ephemeral {
		return contender{}, false
	}
	for _, l := range lockNames {
		m := l.pattern.FindStringSubmatch(path.Base(n.Path))
		if m == nil {
			continue
		}
		number, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return contender{}, false
		}
		return contender{path: n.Path, family: l.family, number: number, stat: n.Stat, data: n.Data}, true
	}
	return contender{}, false
}

// sortLine puts a line in its order. Numbers of one parent do not repeat, so
// that the families have one order together.
func sortLine(line []contender) {
	slices.SortFunc(line, func(a, b contender) int { return cmp.Compare(a.number, b.number) })
}

// mixed says whether clients of different families are in one line.
func mixed(line []contender) bool {
	for i := range line {
		if line[i].family != line[0].family {
			return true
		}
	}
	return false
}

// ownerData is what the recipes write into their znodes.
type ownerData struct {
	Owner  string            `json:"owner"`
	Labels map[string]string `json:"labels"`
}

// maxOwner bounds a name from foreign data.
const maxOwner = 64

// owner is the name in the znode's data: this project's JSON, or the text that
// other clients write.
func (c *contender) owner() (name string, labels map[string]string) {
	var d ownerData
	if err := json.Unmarshal(c.data, &d); err == nil && d.Owner != "" {
		return d.Owner, d.Labels
	}
	text := string(c.data)
	for _, r := range text {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return "", nil
		}
	}
	if r := []rune(text); len(r) > maxOwner {
		text = string(r[:maxOwner]) + "…"
	}
	if text != "" && c.family != curator {
		text = "(" + c.family + ") " + text
	}
	return text, nil
}
