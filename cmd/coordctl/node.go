package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"iter"
	"path"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coordd/coord/client"
)

// nodeItem is a znode as scripts see it. What was not read is left out.
type nodeItem struct {
	Path string    `json:"path"`
	Name string    `json:"name,omitempty"`
	Zxid string    `json:"zxid,omitempty"` // of the server's state when it was read
	Stat *statItem `json:"stat,omitempty"`
}

// payload is a znode's data: text where it is text. Null data is null, without
// an encoding.
type payload struct {
	Data     *string `json:"data"`
	Encoding string  `json:"dataEncoding,omitempty"`
}

func newPayload(data []byte) payload {
	text, encoding := string(data), "utf8"
	switch {
	case data == nil:
		return payload{}
	case !utf8.Valid(data):
		text, encoding = base64.StdEncoding.EncodeToString(data), "base64"
	}
	return payload{&text, encoding}
}

// statItem is a Stat as scripts see it. The counters are plain numbers: they
// count single writes and do not come near 2^53.
type statItem struct {
	Kind           string `json:"kind"`
	Czxid          string `json:"czxid"`
	Mzxid          string `json:"mzxid"`
	Pzxid          string `json:"pzxid"`
	Ctime          string `json:"ctime"`
	Mtime          string `json:"mtime"`
	Version        int64  `json:"version"`
	Cversion       int64  `json:"cversion"`
	Aversion       int64  `json:"aversion"`
	EphemeralOwner string `json:"ephemeralOwner,omitempty"`
	DataLength     int32  `json:"dataLength"`
	NumChildren    int32  `json:"numChildren"`
	TTLMs          int64  `json:"ttlMs,omitempty"`
	LingerMs       int64  `json:"lingerMs,omitempty"` // an ephemeral outlives its session by it
}

func newStatItem(s *client.Stat) *statItem {
	item := &statItem{
		Kind: s.Kind.String(), Czxid: s.Czxid.String(), Mzxid: s.Mzxid.String(), Pzxid: s.Pzxid.String(),
		Ctime: timestamp(s.Ctime), Mtime: timestamp(s.Mtime),
		Version: s.Version, Cversion: s.Cversion, Aversion: s.Aversion,
		DataLength: s.DataLength, NumChildren: s.NumChildren, TTLMs: s.TTL.Milliseconds(),
		LingerMs: s.Linger.Milliseconds(),
	}
	if s.EphemeralOwner != 0 {
		item.EphemeralOwner = s.EphemeralOwner.String()
	}
	return item
}

func printStat(w io.Writer, s *client.Stat) error {
	i := newStatItem(s)
	rows := [][2]string{
		{"kind", i.Kind},
		{"czxid", i.Czxid},
		{"mzxid", i.Mzxid},
		{"pzxid", i.Pzxid},
		{"ctime", whenAgo(i.Ctime, s.Ctime)},
		{"mtime", whenAgo(i.Mtime, s.Mtime)},
		{"version", strconv.FormatInt(i.Version, 10)},
		{"cversion", strconv.FormatInt(i.Cversion, 10)},
		{"aversion", strconv.FormatInt(i.Aversion, 10)},
		{"ephemeralOwner", dash(i.EphemeralOwner)},
		{"dataLength", strconv.Itoa(int(i.DataLength))},
		{"numChildren", strconv.Itoa(int(i.NumChildren))},
	}
	if s.TTL > 0 {
		rows = append(rows, [2]string{"ttl", s.TTL.String()})
	}
	if s.Linger > 0 {
		rows = append(rows, [2]string{"linger", s.Linger.String()})
	}
	for _, r := range rows {
		if _, err := fmt.Fprintf(w, "%-14s  %s\n", r[0], r[1]); err != nil {
			return err
		}
	}
	return nil
}

// statAtOnce is how many Stats are asked for at the same time.
const statAtOnce = 64

// children yields the children of parent with their Stats, in order. Those that
// go meanwhile are left out.
func children(ctx context.Context, c *client.Client, parent string, answered func()) iter.Seq2[client.Node, error] {
	return func(yield func(client.Node, error) bool) {
		names, err := c.Children(ctx, parent)
		if err != nil {
			yield(client.Node{}, err)
			return
		}
		answered()
		for len(names) > 0 {
			n := min(statAtOnce, len(names))
			nodes, err := stats(ctx, c, parent, names[:n])
			if err != nil {
				yield(client.Node{}, err)
				return
			}
			answered()
			for _, node := range nodes {
				if !yield(node, nil) {
					return
				}
			}
			names = names[n:]
		}
	}
}

// stats reads the Stats of some children at the same time.
func stats(ctx context.Context, c *client.Client, parent string, names []string) ([]client.Node, error) {
	type answer struct {
		stat client.Stat
		ok   bool
		err  error
	}
	answers := make([]answer, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			a := &answers[i]
			a.stat, a.ok, a.err = c.Exists(ctx, path.Join(parent, name))
		})
	}
	wg.Wait()
	var out []client.Node
	for i, a := range answers {
		switch {
		case a.err != nil:
			return nil, a.err
		case a.ok:
			out = append(out, client.Node{Path: path.Join(parent, names[i]), Stat: a.stat})
		}
	}
	return out, nil
}

// visit yields root and what is below it, down to the given number of levels
// (below zero: all), parents before children, without data.
func visit(ctx context.Context, c *client.Client, root string, levels int, answered func()) iter.Seq2[client.Node, error] {
	if levels < 0 {
		return walk(ctx, c, root, answered)
	}
	return func(yield func(client.Node, error) bool) {
		st, ok, err := c.Exists(ctx, root)
		if err == nil && !ok {
			err = &client.Error{Op: "ls", Path: root, Err: client.ErrNoNode, Index: -1}
		}
		if err != nil {
			yield(client.Node{}, err)
			return
		}
		answered()
		if yield(client.Node{Path: root, Stat: st}, nil) {
			descend(ctx, c, root, levels, answered, yield)
		}
	}
}

func walk(ctx context.Context, c *client.Client, root string, answered func()) iter.Seq2[client.Node, error] {
	return func(yield func(client.Node, error) bool) {
		for n, err := range c.Walk(ctx, root, client.WithoutData()) {
			answered()
			if !yield(n, err) {
				return
			}
		}
	}
}

func descend(ctx context.Context, c *client.Client, parent string, levels int, answered func(), yield func(client.Node, error) bool) bool {
	if levels == 0 {
		return true
	}
	for n, err := range children(ctx, c, parent, answered) {
		if !yield(n, err) {
			return false
		}
		if err == nil && n.Stat.NumChildren > 0 && !descend(ctx, c, n.Path, levels-1, answered, yield) {
			return false
		}
	}
	return true
}

// kindOf is the kind of a znode, with its time if it has one.
func kindOf(s *client.Stat) string {
	if s.Kind == client.TTL {
		return "ttl " + s.TTL.Round(time.Millisecond).String()
	}
	return s.Kind.String()
}

// whenAgo is a time and its age.
func whenAgo(when string, ms int64) string {
	if ms == 0 {
		return when
	}
	return when + " (" + since(ms) + " ago)"
}
