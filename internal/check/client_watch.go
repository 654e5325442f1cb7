package check

import (
	"context"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// Watch records everything that happens at path and below it, from now on or from
// behind the transaction since, until ctx ends or the session. It calls seen, if
// that is not nil, with each event, and ends when that returns false. It returns
// the error that the watch ended with, nil if seen ended it.
func (c *Client) Watch(ctx context.Context, path string, since zxid.ID, seen func(client.Event) bool) error {
	if since == 0 {
		z, err := c.Sync(ctx)
		if err != nil {
			return err
		}
		since = z
	}
	r := c.begin(Watching, path)
	r.Zxid, r.Recursive, r.End = since, true, r.Begin
	watch := c.h.Add(r)
	defer func() {
		end := c.begin(Unwatch, path)
		end.Watch, end.End = watch, end.Begin
		c.h.Add(end)
	}()
	for e, err := range c.Client.Watch(ctx, path, client.Recursive(), client.WithData(), client.Since(since)) {
		if err != nil {
			return err
		}
		c.event(watch, e)
		if seen != nil && !seen(e) {
			return nil
		}
	}
	return nil
}

func (c *Client) event(watch int, e client.Event) {
	r := c.begin(Event, e.Path)
	r.End, r.Watch = r.Begin, watch
	r.Type, r.Zxid, r.Index, r.Last = e.Type.String(), e.Zxid, e.Index, e.Last
	r.Stat, r.Data, r.NoData = statOf(e.Stat), string(e.Data), e.DataDropped
	r.Session, r.Cause = e.Session, causeName(e.Cause)
	c.h.Add(r)
}

func causeName(c client.Cause) string {
	switch c {
	case znode.BySessionClose:
		return CauseClosed
	case znode.BySessionExpiry:
		return CauseExpired
	case znode.ByReaper:
		return CauseReaped
	case znode.ByAdmin:
		return CauseAdmin
	default:
		return CauseRequest
	}
}

// Until is a seen for Watch that ends it when the transaction z was seen.
func Until(z zxid.ID) func(client.Event) bool {
	return func(e client.Event) bool { return e.Zxid < z }
}

// Settled records that everything up to z has had the time to reach every watch
// that goes on: what one of them has not told by now is missing. Call it when all
// is healed, some time after the last write.
func (h *History) Settled(z zxid.ID) {
	now := h.now()
	h.Add(Record{Kind: Settled, Zxid: z, Begin: now, End: now})
}
