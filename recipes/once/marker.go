package once

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/internal/settle"
	"github.com/coordd/coord/recipes/lock"
)

// maxTries bounds how often in a row the folder of markers is made again because
// it was reaped before there was one in it.
const maxTries = 10

// card is the data of a marker.
type card struct {
	By      string      `json:"by"`
	Token   fence.Token `json:"token"`
	Started time.Time   `json:"started"` // by the host's clock, for people
	At      time.Time   `json:"at"`      // the same
}

// doneOf reads a marker. One that was made by hand counts as well.
func doneOf(period string, data []byte, stat client.Stat) Done {
	var c card
	_ = json.Unmarshal(data, &c)
	return Done{Period: period, By: c.By, Token: c.Token, At: time.UnixMilli(stat.Ctime)}
}

// read looks for the marker of a period.
func (j *Job) read(ctx context.Context, c *client.Client, period string) (d Done, ok bool, err error) {
	n, err := c.Get(ctx, j.marker(period), client.Mode(client.Linearizable))
	if errors.Is(err, client.ErrNoNode) {
		return Done{}, false, nil
	}
	if err != nil {
		return Done{}, false, err
	}
	return doneOf(period, n.Data, n.Stat), true, nil
}

// done is the data of the folder of markers.
type done struct {
	// Forgotten is the newest period whose marker was removed because of its age.
	Forgotten string `json:"forgotten"`
}

// forgotten reads up to which period the markers are not kept.
func (j *Job) forgotten(ctx context.Context, c *client.Client) (string, client.Stat, error) {
	n, err := c.Get(ctx, j.folder(), client.Mode(client.Linearizable))
	if err != nil {
		if errors.Is(err, client.ErrNoNode) {
			err = nil
		}
		return "", client.Stat{}, err
	}
	var d done
	if len(n.Data) > 0 {
		if err := json.Unmarshal(n.Data, &d); err != nil {
			return "", client.Stat{}, fmt.Errorf("%s does not say which periods are forgotten: %w", j.folder(), err)
		}
	}
	return d.Forgotten, n.Stat, nil
}

// complete makes the marker, in one transaction with the proof that the lock is
// still held. It goes on when the caller's context is done: the work is done, and
// it would be a pity to do it again.
func (j *Job) complete(t Turn, started time.Time) (Done, error) {
	c := t.Handle.Session().Client()
	now := time.Now()
	data, err := json.Marshal(card{t.Handle.Owner(), t.Token, started.UTC().Truncate(time.Millisecond), now.UTC().Truncate(time.Millisecond)})
	if err != nil {
		return Done{}, err
	}
	ctx := t.Handle.Context()
	for range maxTries {
		results, err := c.WriteSettled(ctx, t.Handle.Guard(), client.OpCreate(j.marker(t.Period), data))
		var e *client.Error
		switch {
		case err == nil:
			return doneOf(t.Period, data, results[1].Stat), nil
		case errors.As(err, &e) && e.Index == 1 && errors.Is(err, client.ErrNoNode):
			if err := settle.Folders(ctx, c, j.folder()); err != nil {
				return Done{}, j.incomplete(t, err)
			}
		case errors.Is(err, client.ErrNodeExists): // made by hand under way
			d, ok, err := j.read(ctx, c, t.Period)
			if err != nil {
				return Done{}, err
			}
			if ok {
				d.Repeated = true
				return d, nil
			}
		default:
			return Done{}, j.incomplete(t, err)
		}
	}
	return Done{}, fmt.Errorf("%s: %w: it is deleted again and again", j.folder(), client.ErrUnavailable)
}

// incomplete says why there is no marker.
func (j *Job) incomplete(t Turn, err error) error {
	lost := settle.Missing(err)
	if lost {
		_ = t.Handle.Verify(t.Handle.Context()) // it takes note of the loss
	}
	if !t.Handle.Held() {
		err = fmt.Errorf("%w; %w", context.Cause(t.Handle.Context()), err)
	} else if lost {
		err = fmt.Errorf("%w: %w", lock.ErrLost, err)
	}
	return fmt.Errorf("period %s of %s is not marked as done: %w", t.Period, j.path, err)
}

// pruneAtOnce bounds the transaction that removes markers.
const pruneAtOnce = 100

// prune removes the oldest markers, and says so in the folder's data in the same
// transaction. That it fails is no harm: the next one makes up for it.
func (j *Job) prune(h *lock.Handle) {
	if j.opts.keep < 0 {
		return
	}
	ctx, c := h.Context(), h.Session().Client()
	forgotten, stat, err := j.forgotten(ctx, c)
	if err != nil || int(stat.NumChildren) <= j.opts.keep+j.opts.keep/10 {
		return
	}
	names, err := c.Children(ctx, j.folder())
	if err != nil {
		return
	}
	slices.Sort(names)
	old := names[:min(len(names), pruneAtOnce, max(0, len(names)-max(1, j.opts.keep)))]
	if len(old) == 0 {
		return
	}
	data, err := json.Marshal(done{max(forgotten, old[len(old)-1])})
	if err != nil {
		return
	}
	ops := []client.Op{h.Guard(), client.OpSet(j.folder(), data, stat.Version)}
	for _, name := range old {
		ops = append(ops, client.OpDelete(j.marker(name), client.AnyVersion))
	}
	_, _ = c.WriteSettled(ctx, ops...)
}

// everRan says whether any period was ever done.
func (j *Job) everRan(ctx context.Context, c *client.Client) (bool, error) {
	forgotten, stat, err := j.forgotten(ctx, c)
	return forgotten != "" || stat.NumChildren > 0, err
}
