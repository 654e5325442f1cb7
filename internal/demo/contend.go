package demo

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/lock"
	"github.com/coordd/coord/znode"
)

// contendWatchingPredecessor is the lock as it is.
func contendWatchingPredecessor(ctx context.Context, c *client.Client, path string) place {
	h, err := lock.New(c, path).Acquire(ctx)
	if err != nil {
		return place{err: err}
	}
	return place{node: h.Node(), token: h.FencingToken(), release: h.Release}
}

// contendWatchingFolder is the lock as it is often written: everybody watches
// the folder, and looks at the whole of it whenever somebody has come or gone.
func contendWatchingFolder(ctx context.Context, c *client.Client, path string) place {
	made, err := takeTicket(ctx, c, path)
	if err != nil {
		return place{err: err}
	}
	own := strings.TrimPrefix(made.Path, path+"/")
	for _, err := range c.Watch(ctx, path, client.Children(), client.Initial(client.ReadSession)) {
		if err != nil {
			return place{err: err}
		}
		names, err := c.Children(ctx, path, client.Mode(client.ReadSession))
		if err != nil {
			return place{err: err}
		}
		if slices.MinFunc(names, byNumber) == own {
			break
		}
	}
	return place{
		node: made.Path, token: fence.Token(made.Stat.Czxid),
		release: func(ctx context.Context) error { return c.Delete(ctx, made.Path, client.AnyVersion) },
	}
}

// byNumber orders queue entries as they stand in line.
func byNumber(a, b string) int {
	na, _ := znode.SequenceOf(a)
	nb, _ := znode.SequenceOf(b)
	return cmp.Or(cmp.Compare(na, nb), strings.Compare(a, b))
}
