package znode

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// model is the second implementation: a map from path to node, everything else
// found by looking at all of it, a multi done on a copy.
type model struct{ nodes map[string]mnode }

type mnode struct {
	data    []byte
	acl     []ACL
	creates int64
	stat    Stat // without what is counted: Cversion, NumChildren, DataLength
}

func newModel() *model {
	m := &model{nodes: map[string]mnode{}}
	for _, p := range []string{"/", "/zookeeper", "/zookeeper/quota"} {
		m.nodes[p] = mnode{data: []byte{}, acl: OpenACL}
	}
	m.nodes["/zookeeper/config"] = mnode{data: []byte{}, acl: []ACL{{1, "world", "anyone"}}, stat: Stat{Version: -1, Aversion: -1}}
	return m
}

func (m *model) clone() *model { return &model{maps.Clone(m.nodes)} }

func parentOf(p string) string {
	slash := strings.LastIndex(p, "/")
	if slash <= 0 {
		return "/"
	}
	return p[:slash]
}

func (m *model) children(p string) []string {
	names := []string{}
	for k := range m.nodes {
		if k != "/" && parentOf(k) == p {
			names = append(names, k[strings.LastIndex(k, "/")+1:])
		}
	}
	slices.Sort(names)
	return names
}

func (m *model) stat(p string) Stat {
	n := m.nodes[p]
	s := n.stat
	s.NumChildren = int32(len(m.children(p)))
	s.Cversion = 2*n.creates - int64(s.NumChildren)
	s.DataLength = int32(len(n.data))
	return s
}

func (m *model) may(p string, perm uint32, c *Caller) bool {
	if c.Trusted {
		return true
	}
	for _, a := range m.nodes[p].acl {
		if a.Perms&perm == 0 {
			continue
		}
		if a.Scheme == "world" || slices.Contains(c.Identities, Identity{Scheme: a.Scheme, ID: a.ID}) {
			return true
		}
	}
	return false
}

// fix is what becomes of the lists that the test uses.
func (m *model) fix(list []ACL, c *Caller) ([]ACL, error) {
	var out []ACL
	for _, a := range list {
		if a.Scheme == "auth" {
			if len(c.Identities) == 0 {
				return nil, ErrInvalidACL
			}
			for _, id := range c.Identities {
				if id.Scheme == "digest" {
					out = append(out, ACL{a.Perms, id.Scheme, id.ID})
				}
			}
			continue
		}
		if a.Scheme == "nonsense" {
			return nil, ErrInvalidACL
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		return nil, ErrInvalidACL
	}
	return out, nil
}

func (m *model) apply(tx *Tx, op *Op) (OpResult, error) {
	r := OpResult{Kind: op.Kind, Path: op.Path}
	switch op.Kind {
	case OpCreate:
		r.Err = m.create(tx, op, &r)
	case OpDelete:
		r.Err = m.delete(tx, op)
	case OpSet:
		r.Err = m.set(tx, op, &r)
	case OpSetACL:
		r.Err = m.setACL(tx, op, &r)
	case OpCheck:
		if r.Err = m.there(op.Path); r.Err == nil {
			if r.Err = ErrNoAuth; m.may(op.Path, PermRead, tx.Caller) {
				r.Err = m.expect(op, m.nodes[op.Path].stat.Version)
			}
		}
	case OpSequence:
		r.Err = m.raise(tx, op, &r)
	}
	return r, r.Err
}

func (m *model) multi(tx *Tx, ops []Op) ([]OpResult, error) {
	try, before := m.clone(), len(tx.Changes)
	var rs []OpResult
	for i := range ops {
		r, err := try.apply(tx, &ops[i])
		if err != nil {
			tx.Changes = tx.Changes[:before]
			rs = nil
			for k := range ops {
				r := OpResult{Kind: ops[k].Kind, Path: ops[k].Path}
				if k == i {
					r.Err = err
				} else if k > i {
					r.Err = ErrRolledBack
				}
				rs = append(rs, r)
			}
			return rs, err
		}
		rs = append(rs, r)
	}
	m.nodes = try.nodes
	return rs, nil
}

func (m *model) there(p string) error {
	if ValidatePath(p) != nil {
		return ErrBadPath
	}
	if _, ok := m.nodes[p]; !ok {
		return ErrNoNode
	}
	return nil
}

func (m *model) expect(op *Op, version int64) error {
	s := m.nodes[op.Path].stat
	bad := op.Czxid != 0 && op.Czxid != s.Czxid || op.Owner != 0 && op.Owner != s.EphemeralOwner
	if op.Kind == OpSetACL {
		bad = false
	}
	if op.Version != -1 {
		have := version
		if op.Version31 {
			have &= 0x7fffffff
		}
		bad = bad || have != op.Version || op.Version < 0
	}
	if bad {
		return ErrBadVersion
	}
	return nil
}

func (m *model) change(tx *Tx, kind ChangeType, p string, s Stat) {
	c := Change{Type: kind, Path: p, Zxid: tx.Zxid, Cause: tx.Cause, Session: tx.Caller.Session, Stat: s}
	if kind != Deleted {
		acl := m.nodes[p].acl
		c.Data, c.acl = m.nodes[p].data, &acl
	}
	tx.Changes = append(tx.Changes, c)
}

func (m *model) create(tx *Tx, op *Op, r *OpResult) error {
	if op.Node == Ephemeral && tx.Caller.Session == 0 || !timesFit(op) {
		return ErrBadArguments
	}
	if !strings.Contains(op.Path, "/") {
		return ErrBadPath
	}
	acl, err := m.fix(op.ACL, tx.Caller)
	if err != nil {
		return err
	}
	parent := parentOf(op.Path)
	p, ok := m.nodes[parent]
	if !ok || op.Path[0] != '/' {
		return ErrNoNode
	}
	if !m.may(parent, PermCreate, tx.Caller) {
		return ErrNoAuth
	}
	path := op.Path
	if op.Sequential {
		path += fmt.Sprintf("%010d", p.creates)
	}
	if ValidatePath(path) != nil {
		return ErrBadPath
	}
	if _, ok := m.nodes[path]; ok {
		return ErrNodeExists
	}
	if p.stat.Kind == Ephemeral {
		return ErrEphemeralParent
	}
	if m.over(path, 1, len(op.Data)) {
		return ErrQuotaExceeded
	}
	p.creates++
	p.stat.Pzxid = tx.Zxid
	m.nodes[parent] = p
	n := mnode{data: op.Data, acl: acl, stat: Stat{
		Czxid: tx.Zxid, Mzxid: tx.Zxid, Pzxid: tx.Zxid, Ctime: tx.Time, Mtime: tx.Time, Kind: op.Node,
	}}
	if op.Node == Ephemeral {
		n.stat.EphemeralOwner = tx.Caller.Session
	}
	n.stat.TTL, n.stat.Linger = op.TTL, op.Linger
	m.nodes[path] = n
	m.charge(path, 1, len(op.Data))
	if top, ok := m.quotaOf(path); ok {
		m.showStats(top)
	}
	r.Path, r.Stat = path, m.stat(path)
	m.change(tx, Created, path, r.Stat)
	return nil
}

func (m *model) delete(tx *Tx, op *Op) error {
	if slices.Contains([]string{"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"}, op.Path) {
		return ErrProtected
	}
	if !strings.Contains(op.Path, "/") {
		return ErrBadPath
	}
	parent := parentOf(op.Path)
	if _, ok := m.nodes[parent]; !ok || op.Path[0] != '/' {
		return ErrNoNode
	}
	if !m.may(parent, PermDelete, tx.Caller) {
		return ErrNoAuth
	}
	if _, ok := m.nodes[op.Path]; !ok {
		return ErrNoNode
	}
	if err := m.expect(op, m.nodes[op.Path].stat.Version); err != nil {
		return err
	}
	if len(m.children(op.Path)) > 0 {
		return ErrNotEmpty
	}
	m.remove(tx, op.Path)
	return nil
}

func (m *model) remove(tx *Tx, path string) {
	m.change(tx, Deleted, path, m.stat(path))
	size := len(m.nodes[path].data)
	delete(m.nodes, path)
	p := m.nodes[parentOf(path)]
	p.stat.Pzxid = tx.Zxid
	m.nodes[parentOf(path)] = p
	m.charge(path, -1, -size)
}

func (m *model) set(tx *Tx, op *Op, r *OpResult) error {
	if err := m.there(op.Path); err != nil {
		return err
	}
	n := m.nodes[op.Path]
	if !m.may(op.Path, PermWrite, tx.Caller) {
		return ErrNoAuth
	}
	if err := m.expect(op, n.stat.Version); err != nil {
		return err
	}
	if !m.newTimes(op, &n.stat) {
		return ErrBadArguments
	}
	grown := len(op.Data) - len(n.data)
	if m.over(op.Path, 0, grown) {
		return ErrQuotaExceeded
	}
	n.data = op.Data
	n.stat.Version++
	n.stat.Mzxid, n.stat.Mtime = tx.Zxid, tx.Time
	m.nodes[op.Path] = n
	m.charge(op.Path, 0, grown)
	r.Stat = m.stat(op.Path)
	m.change(tx, DataChanged, op.Path, r.Stat)
	return nil
}

func (m *model) setACL(tx *Tx, op *Op, r *OpResult) error {
	if ValidatePath(op.Path) != nil {
		return ErrBadPath
	}
	acl, err := m.fix(op.ACL, tx.Caller)
	if err != nil {
		return err
	}
	if err := m.there(op.Path); err != nil {
		return err
	}
	n := m.nodes[op.Path]
	if !m.may(op.Path, PermAdmin, tx.Caller) {
		return ErrNoAuth
	}
	if err := m.expect(op, n.stat.Aversion); err != nil {
		return err
	}
	n.acl = acl
	n.stat.Aversion++
	m.nodes[op.Path] = n
	r.Stat = m.stat(op.Path)
	m.change(tx, ACLChanged, op.Path, r.Stat)
	return nil
}
