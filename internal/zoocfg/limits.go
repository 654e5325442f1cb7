package zoocfg

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// defaultTick is ZooKeeper's, where a file does not say it.
	defaultTick = 3000
	// Session timeouts are bounded by these many ticks.
	minTicks, maxTicks = 2, 20
	// shortest is the shortest bound that servers take.
	shortest = 100 * time.Millisecond
	// defaultTimeout is what clients of gRPC get that ask for none.
	defaultTimeout = 10 * time.Second
)

// times maps the bounds of session timeouts; a tick has no other meaning here.
func (c *converter) times() {
	tick, e := c.number("tickTime", defaultTick, 1)
	low, lowFrom := c.number("minSessionTimeout", -1, -1)
	high, highFrom := c.number("maxSessionTimeout", -1, -1)
	if low == -1 {
		low, lowFrom = minTicks*tick, e
	}
	if high == -1 {
		high, highFrom = maxTicks*tick, e
	}
	least, most := milliseconds(low), milliseconds(high)
	if least < shortest {
		c.note(lowFrom, fmt.Sprintf("sessions shorter than %s are not granted", shortest))
		least, most = shortest, max(most, shortest)
	}
	if least > most {
		c.refuse(lowFrom, "minSessionTimeout is above maxSessionTimeout")
		return
	}
	c.set("session.min", least.String(), lowFrom)
	c.set("session.default", min(max(defaultTimeout, least), most).String(), c.rule("within the bounds"))
	c.set("session.max", most.String(), highFrom)
}

func milliseconds(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// Sizes that servers bound, in bytes.
const (
	nodeSize  = 1 << 20  // of a znode's data, unless set
	frameSize = 4 << 20  // of a message of gRPC, unless set
	frameRoom = 64 << 10 // of a message around its data
	dataSize  = 16 << 20 // most for one znode
)

// limits maps what bounds clients.
func (c *converter) limits() {
	perAddress, e := c.number("maxClientCnxns", 60, 0)
	c.set("limits.connections_per_address", strconv.Itoa(perAddress), e)
	if total, e := c.number("maxCnxns", 0, 0); e.Line > 0 {
		c.set("limits.connections", strconv.Itoa(total), e)
	}
	c.words()
	readOnly, e := c.flag("readonlymode.enabled", false)
	if e.Line > 0 {
		c.set("zookeeper.read_only", strconv.FormatBool(readOnly), e)
	}
	c.frames()
}

// frames maps the longest request, within which a znode's data has to fit.
func (c *converter) frames() {
	e, ok := c.take("jute.maxbuffer")
	if !ok {
		return
	}
	n, err := strconv.ParseInt(e.Value, 0, 32)
	switch {
	case err != nil || n < 1:
		c.refuse(e, "this is no number of bytes")
	case n > dataSize:
		c.refuse(e, fmt.Sprintf("no znode may have more than %d bytes here", dataSize))
	default:
		c.set("zookeeper.frame_size", strconv.FormatInt(n, 10), e)
		if n > nodeSize {
			c.set("limits.node_size", strconv.FormatInt(n, 10), e)
		}
		if n+frameRoom > frameSize {
			c.set("limits.frame_size", strconv.FormatInt(n+frameRoom, 10), e)
		}
	}
}

// words that are answered. Without a list they are ours, which tell of the server
// itself only; ZooKeeper's list is a part of them.
func (c *converter) words() {
	e, ok := c.take("4lw.commands.whitelist")
	if !ok {
		return
	}
	var words []string
	for word := range strings.SplitSeq(e.Value, ",") {
		word = strings.TrimSpace(word)
		switch {
		case word == "":
		case why[word] != "":
			c.note(e, word+": "+why[word])
		default:
			words = append(words, word)
		}
	}
	c.set("zookeeper.words", strings.Join(words, ","), e)
}

// why are the words that nobody answers here, with the reason.
var why = map[string]string{
	"crst": "connections keep no figures that could be reset; srst resets those of the server",
	"gtmk": "there is no trace mask; log.level says what is logged",
	"stmk": "there is no trace mask; log.level says what is logged",
	"hash": "replicas compare themselves all the time; a difference ends the server",
	"lsnp": "snapshots are not counted by ZooKeeper's rules",
	"lead": "mntr and srvr say who leads",
	"orst": "there is no history of observers",
	"obsr": "there is no history of observers",
	"sysp": "there is no virtual machine with properties",
	"kill": "no word may end a server",
}
