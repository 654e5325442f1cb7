package counter

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// state is the counter's znode as it was at one moment. The zero state is that of
// a znode that does not exist.
type state struct {
	value   int64
	czxid   client.Zxid // 0: there is none
	version client.Version
}

// read looks at the znode. What it returns is not older than the call.
func (c *Counter) read(ctx context.Context) (state, error) {
	n, err := c.c.Get(ctx, c.path, client.Mode(client.Linearizable))
	if errors.Is(err, client.ErrNoNode) {
		return state{}, nil
	}
	if err != nil {
		return state{}, err
	}
	value, err := parse(c.path, n.Data)
	return state{value, n.Stat.Czxid, n.Stat.Version}, err
}

// maxText bounds what an error shows of foreign content.
const maxText = 40

// parse reads a number. White space around it is what editors and shells leave.
func parse(path string, data []byte) (int64, error) {
	v, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err == nil {
		return v, nil
	}
	text := string(data[:min(len(data), maxText)])
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "?")
	}
	return 0, &ContentError{Path: path, Text: text, Size: len(data)}
}

// doing is how a write is made: [client.Client.Txn] or [client.Client.WriteSettled].
type doing func(context.Context, ...client.Op) ([]client.OpResult, error)

// write replaces the very state s: if the znode was set, deleted or made anew
// since, nothing is done and the error is a conflict. The czxid is checked because
// a version can come again. It returns the new state.
func (c *Counter) write(ctx context.Context, do doing, s state, value int64) (state, error) {
	text := strconv.AppendInt(nil, value, 10)
	ops := []client.Op{client.OpCreate(c.path, text)}
	if s.czxid != 0 {
		ops = []client.Op{client.OpCheckNode(c.path, s.czxid, 0), client.OpSet(c.path, text, s.version)}
	}
	results, err := do(ctx, ops...)
	if err == nil {
		st := results[len(results)-1].Stat
		return state{value, st.Czxid, st.Version}, nil
	}
	if s.czxid == 0 && errors.Is(err, client.ErrNoNode) {
		if err := settle.Folders(ctx, c.c, settle.Parent(c.path)); err != nil {
			return state{}, err
		}
	}
	return state{}, err
}

// conflict says that the state was another one, and that nothing was done.
func conflict(err error) bool {
	return errors.Is(err, client.ErrBadVersion) || errors.Is(err, client.ErrNoNode) || errors.Is(err, client.ErrNodeExists)
}

// settled does a write of which many callers wait for the outcome.
func (c *Counter) settled(ctx context.Context, ops ...client.Op) ([]client.OpResult, error) {
	if c.c.Session().Timeout() > 0 {
		return c.c.WriteSettled(ctx, ops...)
	}
	// Without a session the write is recognised by an id of its own.
	return c.c.Txn(client.WithRequestID(ctx, rand.Text()), ops...)
}

// The pauses of those that got in one another's way.
const (
	minPause = time.Millisecond
	maxPause = 128 * time.Millisecond
)

// pause waits for a random time that grows with the number of tries before.
func pause(ctx context.Context, tries int) error {
	most := min(minPause<<min(tries, 16), maxPause)
	t := time.NewTimer(mathrand.N(most) + most/8)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
