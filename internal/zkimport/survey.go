package zkimport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// readsAtOnce is how many requests to the ensemble are under way.
const readsAtOnce = 256

// Paths of what belongs to the service itself.
const (
	systemPath = "/zookeeper"
	quotaPath  = "/zookeeper/quota"
	quotaLimit = "zookeeper_limits"
	quotaStats = "zookeeper_stats"
)

// ErrNoTop is returned for a subtree whose top is not there.
var ErrNoTop = errors.New("no such znode in the ensemble")

// Survey is what is known of a subtree without its data. Its memory is about
// 200 bytes and the path for each znode.
type Survey struct {
	Top string // path in the ensemble
	// Ephemerals are the paths of those that are passed over, sorted.
	Ephemerals []string
	// Gone counts znodes that were deleted between two looks at them.
	Gone int

	source   *Source
	progress *Progress
	nodes    []node // parents first, siblings sorted
	acls     aclTable
	faults   []Fault // found in the ensemble, with its paths
	quotas   []quota
}

// node is one znode of a survey.
type node struct {
	path    string
	parent  int32 // position of the parent; -1 for the top
	acl     int32 // number in the table
	bytes   int32 // of data, at the time
	creates int64
	czxid   zxid.ID
	mzxid   zxid.ID
}

// quota is one znode with limits, below /zookeeper/quota.
type quota struct {
	top  string // whose they are
	data []byte
}

// Look reads the subtree below path, and the quotas in it. Progress may be nil.
// The error is [ErrNoTop], [ErrUnreachable] or the context's; what a znode is
// not copied for is no error but a fault of the plan.
func Look(ctx context.Context, s *Source, path string, p *Progress) (*Survey, error) {
	v := &Survey{Top: path, source: s, progress: p}
	p.begin("reading", 0)
	if err := v.read(ctx, path, v.take); err != nil {
		return nil, err
	}
	if len(v.nodes) == 0 && len(v.faults) == 0 {
		why := ErrNoTop
		if len(v.Ephemerals) > 0 {
			why = errors.New("the znode is ephemeral")
		}
		return nil, fmt.Errorf("%s: %w", path, why)
	}
	slices.Sort(v.Ephemerals)
	if err := v.readQuotas(ctx); err != nil {
		return nil, err
	}
	return v, nil
}

// Znodes is how many there are to copy.
func (v *Survey) Znodes() int { return len(v.nodes) }

// Bytes are those of their data.
func (v *Survey) Bytes() int64 {
	sum := int64(0)
	for i := range v.nodes {
		sum += int64(v.nodes[i].bytes)
	}
	return sum
}

// ACLs is how many lists of permissions differ.
func (v *Survey) ACLs() int { return len(v.acls.lists) }

// found is what the ensemble says of one znode.
type found struct {
	path   string
	parent int32
	stat   znode.Stat
	names  []string
	acl    []znode.ACL
	err    error // a wire.Code
}

// read goes through a subtree, level by level: within one all requests are under
// way at the same time. take gets each znode in order and says whether to go
// below it, and as whose children.
func (v *Survey) read(ctx context.Context, top string, take func(*found) (int32, bool)) error {
	level := []*found{{path: top, parent: -1}}
	for len(level) > 0 {
		if err := v.readLevel(ctx, level); err != nil {
			return err
		}
		var next []*found
		for i, f := range level {
			at, below := take(f)
			if below {
				slices.Sort(f.names)
				for _, name := range f.names {
					next = append(next, &found{path: join(f.path, name), parent: at})
				}
			}
			level[i] = nil
		}
		level = next
	}
	return nil
}

func (v *Survey) readLevel(ctx context.Context, level []*found) error {
	g, ctx := errgroup.WithContext(ctx)
	work := make(chan *found)
	g.Go(func() error {
		defer close(work)
		for _, f := range level {
			select {
			case work <- f:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range min(readsAtOnce/2, len(level)) {
		g.Go(func() error {
			for f := range work {
				if err := v.source.find(ctx, f); err != nil {
					return err
				}
				v.progress.add(1, 0)
			}
			return nil
		})
	}
	return g.Wait()
}

// find asks for all that a survey wants to know of one znode.
func (s *Source) find(ctx context.Context, f *found) error {
	r, err := s.do(ctx, wire.Request{Op: wire.Op{Type: wire.GetChildren2, Path: f.path}})
	if err == nil {
		f.names, f.stat = r.Names, r.Stat
		if r, err = s.do(ctx, wire.Request{Op: wire.Op{Type: wire.GetACL, Path: f.path}}); err == nil {
			f.acl = r.ACL
		}
	}
	var code wire.Code
	if errors.As(err, &code) {
		f.err, err = code, nil
	}
	return err
}

// take puts one znode into the survey.
func (v *Survey) take(f *found) (at int32, below bool) {
	switch {
	case f.path == systemPath:
		return 0, false
	case errors.Is(f.err, wire.NoNode):
		if f.parent >= 0 {
			v.Gone++
		}
		return 0, false
	case f.err != nil:
		v.faults = append(v.faults, sourceFault(f.path, f.err))
		return 0, false
	case f.stat.EphemeralOwner != 0:
		v.Ephemerals = append(v.Ephemerals, f.path)
		return 0, false
	}
	v.nodes = append(v.nodes, node{
		path: f.path, parent: f.parent, acl: int32(v.acls.intern(stored(f.acl))), bytes: f.stat.DataLength,
		creates: creates(&f.stat), czxid: f.stat.Czxid, mzxid: f.stat.Mzxid,
	})
	return int32(len(v.nodes) - 1), true
}

func sourceFault(path string, err error) Fault {
	f := Fault{Path: path, Kind: FaultRead, Reason: fmt.Sprintf("the ensemble does not show it: %v", err)}
	if errors.Is(err, wire.NoAuth) {
		f.Reason = "may not be read with these credentials"
	}
	return f
}

// readQuotas finds the quotas of the znodes that are copied.
func (v *Survey) readQuotas(ctx context.Context) error {
	var limits []string
	err := v.read(ctx, quotaPath, func(f *found) (int32, bool) {
		top, isLimit := quotaTop(f.path)
		switch {
		case errors.Is(f.err, wire.NoNode):
			return 0, false
		case f.err != nil:
			if strings.HasPrefix(v.Top+"/", top+"/") || within(top, v.Top) {
				v.faults = append(v.faults, sourceFault(f.path, f.err))
			}
			return 0, false
		case isLimit && within(top, v.Top):
			limits = append(limits, f.path)
		}
		return 0, true
	})
	if err != nil {
		return err
	}
	for _, path := range limits {
		data, _, err := v.source.data(ctx, path)
		top, _ := quotaTop(path)
		switch {
		case errors.Is(err, wire.NoNode):
		case errors.As(err, new(wire.Code)):
			v.faults = append(v.faults, sourceFault(path, err))
		case err != nil:
			return err
		default:
			v.quotas = append(v.quotas, quota{top, data})
		}
	}
	slices.SortFunc(v.quotas, func(a, b quota) int { return cmp.Compare(a.top, b.top) })
	return nil
}

// quotaTop is the subtree that a znode below /zookeeper/quota is about, and whether
// it holds the limits.
func quotaTop(path string) (top string, isLimit bool) {
	top = strings.TrimPrefix(path, quotaPath)
	top, isLimit = strings.CutSuffix(top, "/"+quotaLimit)
	return top, isLimit && top != ""
}

// data reads the data of a znode; nil is null. The error is a wire.Code if a
// server has answered with one.
func (s *Source) data(ctx context.Context, path string) ([]byte, znode.Stat, error) {
	r, err := s.do(ctx, wire.Request{Op: wire.Op{Type: wire.GetData, Path: path}})
	if err != nil {
		return nil, znode.Stat{}, err
	}
	return r.Data, r.Stat, nil
}

func join(parent, name string) string { return strings.TrimSuffix(parent, "/") + "/" + name }

// within says whether path is top or below it.
func within(path, top string) bool {
	return path == top || top == "/" || strings.HasPrefix(path, top+"/")
}
