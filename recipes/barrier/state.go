package barrier

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
	"github.com/coordd/coord/znode"
)

// state is the data of a double barrier's folder.
//
// Invariant: entries up to Last belong to round Round, and there are Members of
// them when it opens; Round and Last only rise while the folder lives.
type state struct {
	Members int    `json:"members"`
	Round   uint64 `json:"round"`
	Last    uint64 `json:"last"`
}

// inside says whether the entry with this number belongs to the open round, or
// to an earlier one.
func (s state) inside(number uint64) bool { return s.Round > 0 && number <= s.Last }

func (s state) encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return nil // numbers: it does not fail
	}
	return b
}

// decode reads the state of a folder that is in use. ok is false for one that
// holds nothing yet.
func decode(path string, data []byte) (s state, ok bool, err error) {
	if len(data) == 0 {
		return state{}, false, nil
	}
	if err := json.Unmarshal(data, &s); err != nil || s.Members < 1 {
		return state{}, false, fmt.Errorf("barrier %s: %w: %.40q", path, ErrContent, data)
	}
	return s, true, nil
}

// entry is one child of a double barrier that is a member's.
type entry struct {
	name   string
	number uint64
}

const memberSuffix = "member-" // of their names, before the number

// entriesOf picks the members' entries out of the children's names, in the order
// in which they came.
func entriesOf(names []string) []entry {
	var out []entry
	for _, name := range names {
		n, ok := znode.SequenceOf(name)
		if ok && strings.HasSuffix(strings.TrimRight(name, "0123456789"), "-"+memberSuffix) {
			out = append(out, entry{name, n})
		}
	}
	slices.SortFunc(out, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.number, b.number), strings.Compare(a.name, b.name))
	})
	return out
}

// errAgain asks for another try: the folder has changed meanwhile.
var errAgain = errors.New("barrier: its folder is deleted again and again")

// changed says that a guarded write met another state.
func changed(err error) bool {
	return errors.Is(err, client.ErrNoNode) || errors.Is(err, client.ErrBadVersion) ||
		errors.Is(err, client.ErrNodeExists) || errors.Is(err, client.ErrNotEmpty)
}

// folder finds the folder's czxid, and makes the folder or its state if need be.
func (d *Double) folder(ctx context.Context) (client.Zxid, error) {
	n, err := d.c.Get(ctx, d.path, client.Mode(client.Linearizable))
	if errors.Is(err, client.ErrNoNode) {
		return d.makeFolder(ctx)
	}
	if err != nil {
		return 0, err
	}
	fresh := state{Members: d.n}
	s, ok, err := decode(d.path, n.Data)
	switch {
	case err != nil:
		return 0, err
	case !ok:
		_, err = d.c.Set(ctx, d.path, fresh.encode(), n.Stat.Version)
	case s.Members == d.n:
		return n.Stat.Czxid, nil
	case n.Stat.NumChildren > 0:
		return 0, &MembersError{Path: d.path, Have: s.Members, Want: d.n}
	default: // nobody uses it: it may become another one
		_, err = d.c.Txn(ctx, client.OpDelete(d.path, n.Stat.Version), client.OpCreate(d.path, fresh.encode(), client.WithContainer()))
	}
	if err == nil || changed(err) {
		return 0, errAgain
	}
	return 0, err
}

func (d *Double) makeFolder(ctx context.Context) (client.Zxid, error) {
	if err := settle.Folders(ctx, d.c, settle.Parent(d.path)); err != nil {
		return 0, err
	}
	made, err := d.c.Create(ctx, d.path, state{Members: d.n}.encode(), client.WithContainer())
	if changed(err) {
		return 0, errAgain
	}
	return made.Stat.Czxid, err
}
