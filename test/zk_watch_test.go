package test

import (
	"fmt"
	"testing"

	"github.com/coordd/coord/wire"
)

func created(p string) wire.Event { return wire.Event{Type: wire.EventCreated, Path: p} }
func deleted(p string) wire.Event { return wire.Event{Type: wire.EventDeleted, Path: p} }
func changed(p string) wire.Event { return wire.Event{Type: wire.EventChanged, Path: p} }
func children(p string) wire.Event {
	return wire.Event{Type: wire.EventChildren, Path: p}
}

func zkWatches(t *testing.T, host, other string) {
	c := zkOpen(t, host)
	dir := c.dir()
	a := dir + "/a"
	// Which watches there are: exists sets one on what is not there, the others do
	// not, nor does a read that was refused.
	c.wants(wire.NoNode, zkRead(wire.Exists, a, true))
	c.wants(wire.NoNode, zkRead(wire.Exists, a, true)) // twice is one
	c.wants(wire.NoNode, zkRead(wire.GetData, dir+"/b", true))
	c.wants(wire.NoNode, zkRead(wire.GetChildren, dir+"/b", true))
	c.wants(wire.NoNode, zkRead(wire.Exists, dir+"/deep/down", true))
	c.must(zkRead(wire.GetChildren, dir, true))
	c.must(zkCreate(a, "", 0))
	c.wantEvents("create", created(a), children(dir))
	c.must(zkSet(a, "1", -1))
	c.must(zkCreate(dir+"/b", "", 0))
	c.wantEvents("watches are gone when they have fired")
	// One event for a node that goes, whatever watches it had.
	c.must(zkRead(wire.GetData, a, true))
	c.must(zkRead(wire.GetChildren2, a, true))
	c.must(zkRead(wire.GetChildren, dir, true))
	c.must(zkDelete(a, -1))
	c.wantEvents("delete", deleted(a), children(dir))
	// Data changes and ACLs.
	c.must(zkRead(wire.GetData, dir, true))
	c.must(wire.Request{Op: wire.Op{Type: wire.SetACL, Path: dir, ACL: openACL, Version: -1}})
	c.must(zkCreate(a, "", 0))
	c.wantEvents("neither ACL nor child is a change of data")
	c.must(zkSet(dir, "2", -1))
	c.wantEvents("set", changed(dir))
	// What fails fires nothing.
	c.must(zkRead(wire.GetData, a, true))
	c.wants(wire.BadVersion, zkSet(a, "x", 7))
	c.must(zkMulti(zkSet(a, "x", -1).Op, zkDelete(dir+"/none", -1).Op))
	c.wantEvents("failed writes")
	// Others' changes, and the end of another's session.
	o := zkOpen(t, other)
	o.must(wire.Request{Op: wire.Op{Type: wire.Sync, Path: a}})
	o.must(zkSet(a, "y", -1))
	c.wantEvents("another's set", changed(a))
	o.must(zkCreate(dir+"/e", "", wire.FlagEphemeral))
	c.must(wire.Request{Op: wire.Op{Type: wire.Sync, Path: a}})
	c.must(zkRead(wire.Exists, dir+"/e", true))
	o.must(wire.Request{Op: wire.Op{Type: wire.CloseSession}})
	c.wantEvents("another's end", deleted(dir+"/e"))
	// Taking them away.
	c.must(zkRead(wire.GetData, a, true))
	c.must(zkRead(wire.GetChildren, a, true))
	for _, q := range []struct {
		typ  wire.Type
		kind int32
		want wire.Code
	}{
		{wire.CheckWatches, wire.WatchData, wire.OK},
		{wire.CheckWatches, wire.WatchChildren, wire.OK},
		{wire.CheckWatches, 9, wire.MarshallingError},
		{wire.RemoveWatches, 0, wire.MarshallingError},
		{wire.RemoveWatches, wire.WatchData, wire.OK},
		{wire.RemoveWatches, wire.WatchData, wire.NoWatcher},
		{wire.CheckWatches, wire.WatchData, wire.NoWatcher},
		{wire.CheckWatches, wire.WatchAny, wire.OK},
		{wire.RemoveWatches, wire.WatchAny, wire.OK},
		{wire.RemoveWatches, wire.WatchAny, wire.NoWatcher},
	} {
		c.wants(q.want, wire.Request{Op: wire.Op{Type: q.typ, Path: a}, Mode: q.kind})
	}
	c.must(zkSet(a, "z", -1))
	c.wantEvents("removed watches")
}

// The event goes out before any reply that shows the change, to whoever asks.
func zkOrder(t *testing.T, host, _ string) {
	c, o := zkOpen(t, host), zkOpen(t, host)
	dir := c.dir()
	c.must(zkCreate(dir+"/a", "", 0))
	c.must(zkRead(wire.GetData, dir+"/a", true))
	c.send(zkSet(dir+"/a", "1", -1))
	if e, ok := c.event(zkPatient); !ok || e != changed(dir+"/a") {
		t.Errorf("before the reply to one's own write: %+v, %v", e, ok)
	}
	c.reply(wire.SetData)
	for i := range 50 {
		c.must(zkRead(wire.GetData, dir+"/a", true))
		o.send(zkSet(dir+"/a", fmt.Sprint(i), -1))
		for {
			r := c.must(zkRead(wire.GetData, dir+"/a", false))
			if string(r.Data) == fmt.Sprint(i) {
				break
			}
			if len(c.events) > 0 {
				break
			}
		}
		if len(c.events) != 1 {
			t.Fatalf("round %d: the new data was shown before the event", i)
		}
		c.events = nil
		o.reply(wire.SetData)
	}
	// Requests act as if one came after the other: a read sees the writes before
	// it and none behind it, and the answers come in order.
	var qs []wire.Request
	for i := range 64 {
		qs = append(qs, zkRead(wire.GetData, dir+"/a", false), zkSet(dir+"/a", fmt.Sprint("w", i), -1), zkRead(wire.Exists, dir+"/a", false))
	}
	first := c.xid
	version := c.must(zkRead(wire.Exists, dir+"/a", false)).Stat.Version
	c.send(qs...)
	for i := range 64 {
		get, set, exists := c.reply(wire.GetData), c.reply(wire.SetData), c.reply(wire.Exists)
		if want := fmt.Sprint("w", i-1); i > 0 && string(get.Data) != want {
			t.Fatalf("read %d shows %q, want %q", i, get.Data, want)
		}
		if v := version + int64(i) + 1; set.Stat.Version != v || exists.Stat.Version != v {
			t.Fatalf("round %d: version %d, then %d", i, set.Stat.Version, exists.Stat.Version)
		}
		if want := first + 2 + int32(3*i); get.Xid != want || set.Xid != want+1 || exists.Xid != want+2 {
			t.Fatalf("round %d: answers to %d, %d, %d", i, get.Xid, set.Xid, exists.Xid)
		}
	}
}

func zkLastingWatches(t *testing.T, host, _ string) {
	c := zkOpen(t, host)
	dir := c.dir()
	a := dir + "/a"
	add := func(path string, mode int32) wire.Request {
		return wire.Request{Op: wire.Op{Type: wire.AddWatch, Path: path}, Mode: mode}
	}
	if r := c.must(add(a, wire.AddPersistent)); len(r.record) != 4 || r.Number != 0 {
		t.Errorf("addWatch answers %x", r.record)
	}
	c.wants(wire.MarshallingError, add(a, 2))
	c.must(zkCreate(a, "", 0))
	c.must(zkSet(a, "1", -1))
	c.must(zkCreate(a+"/x", "", 0))
	c.must(zkSet(a+"/x", "1", -1))
	c.must(zkDelete(a+"/x", -1))
	c.must(zkDelete(a, -1))
	c.must(zkCreate(a, "", 0))
	c.wantEvents("persistent", created(a), changed(a), children(a), children(a), deleted(a), created(a))
	// Its halves can be taken away one by one.
	c.must(wire.Request{Op: wire.Op{Type: wire.RemoveWatches, Path: a}, Mode: wire.WatchData})
	c.must(zkSet(a, "1", -1))
	c.must(zkCreate(a+"/x", "", 0))
	c.wantEvents("without its data half", children(a))
	c.must(wire.Request{Op: wire.Op{Type: wire.RemoveWatches, Path: a}, Mode: wire.WatchAny})
	// Recursive: everything below, never the list of children, one event a change.
	c.must(add(dir, wire.AddPersistentRecursive))
	c.must(add(a, wire.AddPersistentRecursive))
	c.must(zkCreate(a+"/y", "", 0))
	c.must(zkSet(a+"/y", "1", -1))
	c.must(zkDelete(a+"/y", -1))
	c.must(zkSet(dir, "1", -1))
	c.wantEvents("recursive", created(a+"/y"), changed(a+"/y"), deleted(a+"/y"), changed(dir))
	// A one-shot watch beside a lasting one gives no second event.
	c.must(zkRead(wire.GetData, a, true))
	c.must(zkSet(a, "2", -1))
	c.must(zkSet(a, "3", -1))
	c.wantEvents("with a one-shot watch beside it", changed(a), changed(a))
	c.must(wire.Request{Op: wire.Op{Type: wire.RemoveWatches, Path: a}, Mode: wire.WatchAny})
	c.must(wire.Request{Op: wire.Op{Type: wire.RemoveWatches, Path: dir}, Mode: wire.WatchAny})
	c.must(zkSet(a, "4", -1))
	c.wantEvents("removed")
}

// setWatches gives what was missed, and sets the rest again.
func zkWatchesAgain(t *testing.T, host, other string) {
	c := zkOpen(t, host)
	dir := c.dir()
	for _, n := range []string{"/same", "/set", "/gone", "/child", "/quiet"} {
		c.must(zkCreate(dir+n, "", 0))
	}
	since := c.last
	c.net.Close()
	o := zkOpen(t, other)
	o.must(wire.Request{Op: wire.Op{Type: wire.Sync, Path: dir}})
	o.must(zkSet(dir+"/set", "1", -1))
	o.must(zkDelete(dir+"/gone", -1))
	o.must(zkCreate(dir+"/child/x", "", 0))
	o.must(zkCreate(dir+"/new", "", 0))
	c = c.resume(other)
	q := wire.Request{Op: wire.Op{Type: wire.SetWatches2}, Since: since, Watches: [5][]string{
		{dir + "/same", dir + "/set", dir + "/gone", dir + "/never"},
		{dir + "/new", dir + "/not"},
		{dir + "/child", dir + "/quiet", dir + "/gone"},
		{dir + "/same", dir + "/set"},
		{dir + "/child"},
	}}
	c.write(q.Append(wire.Header{Xid: wire.XidSetWatches, Type: wire.SetWatches2}.Append(nil)))
	if r := c.reply(wire.SetWatches2); r.Xid != wire.XidSetWatches || r.Err != wire.OK || len(r.record) != 0 {
		t.Errorf("setWatches2: %+v", r.ReplyHeader)
	}
	c.wantEvents("missed", changed(dir+"/set"), deleted(dir+"/gone"), deleted(dir+"/never"), created(dir+"/new"), children(dir+"/child"), deleted(dir+"/gone"))
	o.must(zkSet(dir+"/same", "1", -1))
	o.must(zkCreate(dir+"/not", "", 0))
	o.must(zkCreate(dir+"/quiet/x", "", 0))
	o.must(zkSet(dir+"/child/x", "1", -1))
	o.must(zkSet(dir+"/set", "2", -1))
	c.wantEvents("set again", changed(dir+"/same"), created(dir+"/not"), children(dir+"/quiet"), changed(dir+"/child/x"), changed(dir+"/set"))
}
