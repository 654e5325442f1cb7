package member

import (
	"context"
	"iter"
	"slices"

	"github.com/coordd/coord/client"
)

// Watch yields the list of members in the order of their ids: first as it is,
// then after each transaction that changed it, in commit order and without
// gaps. A member that rejoins under a new session, or publishes other data, is a
// change; a connection that comes back in time is none. The lists belong to the
// caller.
//
// When the servers no longer know all changes since a connection was lost, the
// list is read anew and yielded if it differs: who came and went in between, or
// left and came back, is not seen then. Member.Czxid tells one who came back from
// one who stayed.
//
// The loop ends with an error as the last thing yielded when ctx is done or the
// client's session is over. A client made with client.WithoutSession watches
// without one.
func (g *Group) Watch(ctx context.Context) iter.Seq2[[]Member, error] {
	return func(yield func([]Member, error) bool) {
		var v *view
		dirty := false
		opts := []client.WatchOption{client.Recursive(), client.WithData(), client.Initial(client.ReadDefault)}
		for ev, err := range g.c.Watch(ctx, g.path, opts...) {
			if err == nil {
				switch ev.Type {
				case client.EventPresent, client.EventAbsent, client.EventResync:
					var next *view
					if next, err = g.load(ctx, ev.Zxid); err == nil {
						dirty = v == nil || !slices.EqualFunc(v.list(), next.list(), same)
						v = next
					}
					ev.Last = true
				default:
					var changed bool
					changed, err = v.apply(ctx, ev)
					dirty = dirty || changed
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if dirty && ev.Last {
				dirty = false
				if !yield(v.list(), nil) {
					return
				}
			}
		}
	}
}
