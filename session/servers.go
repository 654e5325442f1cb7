package session

import (
	"iter"
	"slices"
)

// maxPastBoots is how many former boots of a server are remembered. A late copy
// of a Boot command lives no longer than the leadership that holds it, and a
// process does not start this often in that time.
const maxPastBoots = 64

// BootOutcome says what a Boot command did.
type BootOutcome uint8

const (
	// Booted: a new process; its line starts at number 1.
	Booted BootOutcome = iota
	// BootRepeated: the process is the current one already; nothing changed.
	BootRepeated
	// BootStale: a former process; nothing changed, its commands are void.
	BootStale
)

// ServerLine returns the number line of a server for reading, or nil.
func (t *Table) ServerLine(server string) *ServerLine { return t.serverBy[server] }

// EditServerLine returns it for writing, or nil. The rule for the pointer is
// that of [Table.Edit]. Only Line may be changed.
func (t *Table) EditServerLine(server string) *ServerLine {
	l := t.serverBy[server]
	if l == nil {
		return nil
	}
	if l.edition != t.edition {
		l = l.clone()
		l.edition = t.edition
		t.servers.replace(l, t.edition)
		t.serverBy[server] = l
	}
	if !l.dirty {
		t.sum.total -= l.digest
		l.dirty = true
		t.sum.servers = append(t.sum.servers, l)
	}
	return l
}

// Boot makes nonce the current process of a server. A new one starts the
// server's line anew at number 1, so that nothing of the process before can be
// done any more; one that was current before is stale and changes nothing.
func (t *Table) Boot(server string, nonce uint64) BootOutcome {
	l := t.serverBy[server]
	if l == nil {
		t.addServer(&ServerLine{Server: server, Boot: nonce})
		return Booted
	}
	if l.Boot == nonce {
		return BootRepeated
	}
	if slices.Contains(l.past, nonce) {
		return BootStale
	}
	l = t.EditServerLine(server)
	// Built anew, never appended in place: an image may hold the old one.
	past := l.past
	if len(past) == maxPastBoots {
		past = past[1:]
	}
	l.past = append(slices.Clone(past), l.Boot)
	l.Boot = nonce
	l.Line = Line{}
	return Booted
}

func (t *Table) addServer(l *ServerLine) {
	l.edition = t.edition
	l.dirty = true
	t.sum.servers = append(t.sum.servers, l)
	t.servers.insert(l, t.edition)
	t.serverBy[l.Server] = l
}

// RemoveServer forgets the line of a server that has left the cluster. A name
// with its incarnation never comes back.
func (t *Table) RemoveServer(server string) {
	l := t.serverBy[server]
	if l == nil {
		return
	}
	if l.dirty {
		l.dirty = false
	} else {
		t.sum.total -= l.digest
	}
	t.servers.remove(l, t.edition)
	delete(t.serverBy, server)
}

// Servers yields the lines in ascending order of the servers' names.
func (t *Table) Servers() iter.Seq[*ServerLine] { return t.servers.from(nil) }
