package lock

import (
	"context"
	"encoding/json"
	"errors"
	"path"
	"slices"

	"github.com/coordd/coord/client"
)

const slotsName = "slots"

// want is one wait of a session.
type want struct {
	lock    string
	waiter  Party
	began   client.Zxid
	refuses bool
	holders []Party // of other sessions
	any     bool    // one of the holders leaving is enough, else all must
}

// explorer follows sessions to what they wait for and on to who holds that. Its
// reads are in session order, so that none shows less than one before.
type explorer struct {
	c     *client.Client
	limit int // of sessions
	wants map[client.SessionID][]want
	lines map[string]*line // by lock
}

func newExplorer(c *client.Client, limit int) *explorer {
	return &explorer{c: c, limit: limit, wants: map[client.SessionID][]want{}, lines: map[string]*line{}}
}

// explore looks at the sessions and all that they wait for. Past the limit it
// takes sessions not to wait.
func (e *explorer) explore(ctx context.Context, next []client.SessionID) error {
	for len(next) > 0 {
		s := next[0]
		next = next[1:]
		if _, seen := e.wants[s]; seen || s == 0 || len(e.wants) >= e.limit {
			continue
		}
		wants, err := e.wantsOf(ctx, s)
		if err != nil {
			return err
		}
		e.wants[s] = wants
		for _, w := range wants {
			for i := range w.holders {
				next = append(next, w.holders[i].Session)
			}
		}
	}
	return nil
}

// wantsOf reads what a session waits for.
func (e *explorer) wantsOf(ctx context.Context, s client.SessionID) ([]want, error) {
	nodes, err := e.c.EphemeralsOf(ctx, s, "/", client.Mode(client.ReadSession))
	if err != nil {
		return nil, err
	}
	var out []want
	for _, node := range nodes {
		if !isEntry(path.Base(node)) {
			continue
		}
		l, err := e.line(ctx, path.Dir(node))
		if err != nil {
			return nil, err
		}
		if !l.waits(path.Base(node)) {
			continue
		}
		w, err := e.want(ctx, l, s, node)
		if err != nil {
			return nil, err
		}
		if len(w.holders) > 0 {
			out = append(out, w)
		}
	}
	return out, nil
}

// want describes the wait of a node. It has no holders if it has gone, or if the
// wait will end whatever other sessions do.
func (e *explorer) want(ctx context.Context, l *line, s client.SessionID, node string) (want, error) {
	n, err := e.c.Get(ctx, node, client.Mode(client.ReadSession))
	if errors.Is(err, client.ErrNoNode) || err == nil && n.Stat.EphemeralOwner != s {
		return want{}, nil
	}
	if err != nil {
		return want{}, err
	}
	w := want{lock: l.path, waiter: party(node, n.Data, n.Stat), began: n.Stat.Czxid, any: l.any}
	var c card
	if json.Unmarshal(n.Data, &c) == nil {
		w.refuses = c.Refuses
	}
	for _, h := range l.holders {
		switch {
		case h.Session != 0 && h.Session != s:
			w.holders = append(w.holders, h)
		case l.any: // it lingers, or is the session's own: that place will be free
			return want{}, nil
		}
	}
	return w, nil
}

// isEntry says whether a name is that of an entry in a lock's queue. Other
// children with numbers are not counted here: who waits for them waits for
// something that is no lock.
func isEntry(name string) bool {
	e, ok := parseEntry(name)
	return ok && e.pattern != PatternOther
}

// line is a lock as it was found.
type line struct {
	path    string
	queue   []entry
	held    int     // how many at the head of the queue hold the lock
	holders []Party // they, or those that have a semaphore's slots
	any     bool    // it is a semaphore
	free    bool    // and has a free slot: nobody waits for holders
}

// waits says whether the entry is there and has to wait.
func (l *line) waits(name string) bool {
	return !l.free && slices.IndexFunc(l.queue, func(e entry) bool { return e.name == name }) >= l.held
}

// line reads a lock, once.
func (e *explorer) line(ctx context.Context, lock string) (*line, error) {
	if l := e.lines[lock]; l != nil {
		return l, nil
	}
	l := &line{path: lock}
	e.lines[lock] = l
	names, err := e.c.Children(ctx, lock, client.Mode(client.ReadSession))
	if absent(err) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	l.queue = queueOf(names)
	if k := kindAmong(l.queue); slices.Contains(names, slotsName) && (k == "" || k == KindSemaphore) {
		return l, e.readSlots(ctx, l)
	}
	l.held = holders(l.queue)
	for _, h := range l.queue[:l.held] {
		p, found, err := e.party(ctx, lock+"/"+h.name, party)
		if err != nil {
			return nil, err
		}
		if found {
			l.holders = append(l.holders, p)
		}
	}
	return l, nil
}

// readSlots reads who has the slots of a semaphore.
func (e *explorer) readSlots(ctx context.Context, l *line) error {
	l.any = true
	n, err := e.c.Get(ctx, slotsOf(l.path), client.Mode(client.ReadSession))
	if err == nil {
		var names []string
		names, err = e.c.Children(ctx, slotsOf(l.path), client.Mode(client.ReadSession))
		for i := 0; err == nil && i < len(names); i++ {
			if _, ok := slotOf(names[i]); !ok {
				continue
			}
			p, found, failed := e.party(ctx, slotsOf(l.path)+"/"+names[i], slotParty)
			if err = failed; found {
				l.holders = append(l.holders, p)
			}
		}
	}
	l.free = len(l.holders) < limitIn(n.Data)
	if absent(err) {
		l.free, err = true, nil
	}
	return err
}

// party reads who is behind a node that may have gone.
func (e *explorer) party(ctx context.Context, node string, describe func(string, []byte, client.Stat) Party) (p Party, found bool, err error) {
	n, err := e.c.Get(ctx, node, client.Mode(client.ReadSession))
	if absent(err) {
		return Party{}, false, nil
	}
	if err != nil {
		return Party{}, false, err
	}
	p = describe(node, n.Data, n.Stat)
	p.Holds = true
	return p, true, nil
}

// absent says that there is nothing, or nothing that the caller may see.
func absent(err error) bool {
	return errors.Is(err, client.ErrNoNode) || errors.Is(err, client.ErrNoAuth)
}

// sees says whether the explorer has found all waits of a cycle, and the sessions
// stuck.
func (e *explorer) sees(cycle Cycle, stuck map[client.SessionID]bool) bool {
	for i := range cycle {
		c := &cycle[i]
		s := c.Waiter.Session
		same := func(h Party) bool { return h.Node == c.Holder.Node && h.Session == c.Holder.Session }
		there := slices.ContainsFunc(e.wants[s], func(w want) bool {
			return w.waiter.Node == c.Waiter.Node && w.began == c.began && slices.ContainsFunc(w.holders, same)
		})
		if !there || !stuck[s] {
			return false
		}
	}
	return true
}
