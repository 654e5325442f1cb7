package zkimport

import (
	"fmt"
	"strings"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/znode"
)

// FaultKind says what keeps a znode from being copied.
type FaultKind string

// The kinds of faults.
const (
	FaultRead   FaultKind = "unreadable" // the ensemble does not show the znode or its ACL
	FaultPath   FaultKind = "path"       // no znode of the cluster can have the path
	FaultSize   FaultKind = "size"       // the data is too large
	FaultACL    FaultKind = "acl"        // the cluster would not take the ACL
	FaultRights FaultKind = "rights"     // the cluster would not let this client write it
)

// Fault is a znode that cannot be copied. A plan with faults is not carried out.
type Fault struct {
	Path   string // in the ensemble; of FaultRights in the cluster
	Kind   FaultKind
	Limit  string // the setting that would have to be raised, if it is that
	Reason string
}

// mapping is where paths of the ensemble come to stand.
type mapping struct{ top, under string }

// to is the path in the cluster of one in the ensemble.
func (m mapping) to(path string) string { return rebase(path, m.top, m.under) }

// from is the path in the ensemble of one in the cluster.
func (m mapping) from(path string) string { return rebase(path, m.under, m.top) }

func rebase(path, old, top string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(path, strings.TrimSuffix(old, "/")), "/")
	if rest == "" {
		return top
	}
	return join(top, rest)
}

// limits are what the cluster takes.
type limits struct {
	client.Limits
	slack int // of a message: what is no operation
}

// limitsOf asks the client, and takes what a server takes at least where that is
// not known.
func limitsOf(c *client.Client) limits {
	l := limits{Limits: c.Limits(), slack: 4 << 10}
	for _, d := range []struct {
		field *int
		value int
	}{{&l.NodeBytes, 1 << 20}, {&l.PathBytes, 4 << 10}, {&l.FrameBytes, 4 << 20}, {&l.OpsPerTxn, 128}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	return l
}

// maxACLs and maxACLBytes bound a list of permissions, wherever it is stored.
const (
	maxACLs     = 1024
	maxACLBytes = 4096 // of a scheme or an id
)

// faultOf says why the cluster could not have the znode, nil if it can.
func (l *limits) faultOf(n *node, acl []znode.ACL, m mapping) *Fault {
	path := m.to(n.path)
	f := &Fault{Path: n.path}
	switch {
	case within(path, systemPath):
		f.Kind, f.Reason = FaultPath, path+" belongs to the service"
	case len(path) > l.PathBytes:
		f.Kind, f.Limit = FaultPath, "limits.path_size"
		f.Reason = fmt.Sprintf("path of %d bytes, at most %d (limits.path_size)", len(path), l.PathBytes)
	case int(n.bytes) > l.NodeBytes:
		f.Kind, f.Limit = FaultSize, "limits.node_size"
		f.Reason = fmt.Sprintf("%d bytes of data, at most %d (limits.node_size)", n.bytes, l.NodeBytes)
	case l.faultOfACL(f, acl):
	default:
		if err := znode.ValidatePath(path); err != nil {
			f.Kind, f.Reason = FaultPath, err.Error()
			return f
		}
		return nil
	}
	return f
}

func (l *limits) faultOfACL(f *Fault, acl []znode.ACL) bool {
	f.Kind = FaultACL
	if masked(acl) {
		f.Kind, f.Reason = FaultRead, "its ACL is shown without the hashes of digests, since these credentials do not have ADMIN on it"
		return true
	}
	if len(acl) > maxACLs {
		f.Reason = fmt.Sprintf("ACL of %d entries, at most %d", len(acl), maxACLs)
		return true
	}
	bytes := 0
	for _, a := range acl {
		bytes += len(a.Scheme) + len(a.ID)
		if len(a.Scheme) > maxACLBytes || len(a.ID) > maxACLBytes {
			f.Reason = fmt.Sprintf("ACL entry of more than %d bytes", maxACLBytes)
			return true
		}
	}
	if bytes > l.FrameBytes/4 {
		f.Limit, f.Reason = "limits.frame_size", fmt.Sprintf("ACL of %d bytes, at most a quarter of %d (limits.frame_size)", bytes, l.FrameBytes)
		return true
	}
	if err := znode.ValidateACL(acl); err != nil {
		f.Reason = err.Error()
		return true
	}
	return false
}
