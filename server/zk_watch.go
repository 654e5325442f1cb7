package server

import (
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/watch"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// changeWatch adds, removes or looks for watches by path.
func (c *zkConn) changeWatch(r *zkRequest) wire.Code {
	h := c.s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Type == wire.AddWatch {
		kind, ok := zkLasting(r.Mode)
		if !ok {
			return wire.MarshallingError
		}
		if err := c.addWatchLocked(r.Path, kind); err != nil {
			return zkCode(err)
		}
		return wire.OK
	}
	kinds, ok := zkWatchKinds(r.Mode)
	if !ok {
		return wire.MarshallingError
	}
	found := false
	if r.Type == wire.RemoveWatches {
		found = h.watches.RemovePath(c.sub, r.Path, kinds...)
	} else {
		found = h.watches.Has(c.sub, r.Path, kinds...)
	}
	if !found {
		return wire.NoWatcher
	}
	return wire.OK
}

func zkLasting(mode int32) (watch.Kind, bool) {
	switch mode {
	case wire.AddPersistent:
		return watch.Persistent, true
	case wire.AddPersistentRecursive:
		return watch.Recursive, true
	default:
		return 0, false
	}
}

// zkWatchKinds are the kinds that a client means by a number. The halves of a
// persistent watch can be taken away one by one.
func zkWatchKinds(kind int32) ([]watch.Kind, bool) {
	switch kind {
	case wire.WatchChildren:
		return []watch.Kind{watch.OneShotChildren, watch.Children}, true
	case wire.WatchData:
		return []watch.Kind{watch.OneShotData, watch.OneShotExists, watch.Node}, true
	case wire.WatchAny:
		return []watch.Kind{watch.OneShotChildren, watch.Children, watch.OneShotData, watch.OneShotExists, watch.Node, watch.Persistent, watch.Recursive}, true
	default:
		return nil, false
	}
}

// setWatches registers again what a client had on its former connection: for each
// watch either the event that it has missed, or the watch. It is one look at the
// tree; the machine's read lock is held. An error is the end of the connection:
// clients do not look at the code of this reply, and would wait for ever.
func (c *zkConn) setWatches(r *zkRequest, v *fsm.View) error {
	h := c.s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for list, paths := range r.Watches {
		for _, p := range paths {
			if e := missed(list, p, r.Since, v.Tree); e != 0 {
				h.events[eventTypeOut(zkWatchEvent(e))].Add(1)
				if !c.out.event(wire.Event{Type: e, Path: p}) {
					h.slow.Add(1)
					return fsm.ErrSlowConsumer
				}
				continue
			}
			if err := c.addWatchLocked(p, zkListKind[list]); err != nil {
				return err
			}
		}
	}
	return nil
}

var zkListKind = [...]watch.Kind{
	wire.ListData: watch.OneShotData, wire.ListExists: watch.OneShotExists, wire.ListChildren: watch.OneShotChildren,
	wire.ListPersistent: watch.Persistent, wire.ListRecursive: watch.Recursive,
}

// missed is the event that a one-shot watch of the list would have given since a
// transaction, 0 for none.
func missed(list int, path string, since zxid.ID, t *znode.Tree) wire.EventType {
	if list > wire.ListChildren {
		return 0
	}
	st, ok := t.Exists(path)
	switch {
	case list == wire.ListExists && ok:
		return wire.EventCreated
	case list == wire.ListExists:
		return 0
	case !ok:
		return wire.EventDeleted
	case list == wire.ListData && st.Mzxid > since:
		return wire.EventChanged
	case list == wire.ListChildren && st.Pzxid > since:
		return wire.EventChildren
	}
	return 0
}

// zkWatchEvent is zkEventType backwards.
func zkWatchEvent(t wire.EventType) watch.EventType {
	switch t {
	case wire.EventCreated:
		return watch.Created
	case wire.EventDeleted:
		return watch.Deleted
	case wire.EventChanged:
		return watch.Changed
	default:
		return watch.ChildrenChanged
	}
}
