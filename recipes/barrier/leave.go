package barrier

import (
	"context"
	"errors"
	"slices"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// leave gives up the place and returns when all of the round have.
func (m *member) leave(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}: // also with a context that is done
	default:
		select {
		case m.turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err() // another call is at it
		}
	}
	defer func() { <-m.turn }()
	if m.alone {
		return nil
	}
	err := ctx.Err()
	for err == nil && !m.alone {
		err = m.step(ctx)
	}
	if !m.gone {
		m.remove(ctx)
	}
	return err
}

// step waits for one thing. The first in line of those still inside keeps its
// place until it is alone; the others give theirs up and wait for the first to
// go. So each is woken once when all have left, and only the first more often:
// it waits for the last in line of the others, who is likely to leave last.
func (m *member) step(ctx context.Context) error {
	left, err := m.inside(ctx)
	if err != nil {
		return err
	}
	own := slices.IndexFunc(left, func(e entry) bool { return e.name == m.name })
	switch {
	case own < 0 && !m.gone:
		m.gone = true
		return m.removed(ctx)
	case len(left) == 0, len(left) == 1 && own == 0:
		if !m.gone {
			m.remove(ctx)
		}
		m.alone = true
		return nil
	case own == 0:
		return settle.UntilGone(ctx, m.d.c, m.d.path+"/"+left[len(left)-1].name)
	case !m.gone:
		m.remove(ctx)
	}
	return settle.UntilGone(ctx, m.d.c, m.d.path+"/"+left[0].name)
}

// inside reads who of the round is still there.
func (m *member) inside(ctx context.Context) ([]entry, error) {
	names, err := m.d.c.Children(ctx, m.d.path, client.Mode(client.ReadSession))
	if errors.Is(err, client.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// Is it the folder that we know? If it is now, it was when its names were read.
	st, ok, err := m.d.c.Exists(ctx, m.d.path, client.Mode(client.ReadSession))
	if err != nil || !ok || st.Czxid != m.folder {
		return nil, err
	}
	return slices.DeleteFunc(entriesOf(names), func(e entry) bool { return e.number > m.last }), nil
}
