package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/znode"
)

// Group is a group by name. It has no state: share it freely between goroutines.
type Group struct {
	c    *client.Client
	path string
}

// New names a group; nothing is sent. Missing parts of path are made as
// containers when somebody joins.
func New(c *client.Client, path string) *Group { return &Group{c: c, path: path} }

// Path is the group's path.
func (g *Group) Path() string { return g.path }

// Member is one member as the cluster knows it.
type Member struct {
	ID   string
	Data []byte // as published; the receiver's own copy
	// Session is whose end ends the membership, Since when that session joined,
	// by the cluster's clock, and Czxid the transaction in which it did. They
	// change when the member rejoins.
	Session client.SessionID
	Since   time.Time
	Czxid   client.Zxid
}

func newMember(id string, data []byte, stat client.Stat) Member {
	return Member{
		ID: id, Data: slices.Clone(data), Session: stat.EphemeralOwner,
		Since: time.UnixMilli(stat.Ctime), Czxid: stat.Czxid,
	}
}

// Members reads the list as it is now, in the order of ids. A group that nobody
// has joined is empty. A group of more than some thousand members is read in
// several parts: then members that came or went meanwhile may be in it or not.
func (g *Group) Members(ctx context.Context) ([]Member, error) {
	v, err := g.load(ctx, 0)
	if err != nil {
		return nil, err
	}
	return v.list(), nil
}

// node is the path of the member with this id.
func (g *Group) node(id string) string { return strings.TrimSuffix(g.path, "/") + "/" + id }

// id is the member's id that a path stands for, "" if it is no child of the
// group.
func (g *Group) id(path string) string {
	name, ok := strings.CutPrefix(path, strings.TrimSuffix(g.path, "/")+"/")
	if !ok || strings.Contains(name, "/") {
		return ""
	}
	return name
}

// checkID refuses an id that no znode can be named by.
func (g *Group) checkID(id string) error {
	if strings.Contains(id, "/") {
		return fmt.Errorf("member id %q: %w: it has a slash in it", id, client.ErrBadPath)
	}
	if err := znode.ValidatePath(g.node(id)); err != nil {
		return fmt.Errorf("member id %q: %w", id, err)
	}
	return nil
}

// Errors, besides those of package client and of the caller's context.
var (
	// ErrTaken is returned when another holds the id. It comes as a
	// *TakenError.
	ErrTaken = errors.New("member: the id is taken")
	// ErrLeft is the cause of a membership's context after Leave.
	ErrLeft = errors.New("member: left")
)

// TakenError says who holds the id. It matches ErrTaken.
type TakenError struct {
	Group  string
	Holder Member // without a session if the child is not ephemeral
}

// Error names the id and the session that holds it.
func (e *TakenError) Error() string {
	s := fmt.Sprintf("member %s of %s: the id is taken", e.Holder.ID, e.Group)
	if e.Holder.Session == 0 {
		return s + " by a znode that is not ephemeral"
	}
	return fmt.Sprintf("%s by session %s since %s", s, e.Holder.Session, e.Holder.Since.UTC().Format(time.RFC3339))
}

// Is makes the error match ErrTaken.
func (e *TakenError) Is(target error) bool { return target == ErrTaken }

func sortByID(list []Member) []Member {
	slices.SortFunc(list, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
