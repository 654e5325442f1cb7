package lock

import (
	"errors"
	"fmt"
	"slices"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// removeAll deletes nodes of ours, those very ones, in one transaction. One that
// is not there any more is left out and the others are tried again. The requests
// are made in any case, as soon as the session can. The outcome comes over the
// channel: a *goneError if some had gone already.
func removeAll(c *client.Client, nodes []settle.Node) <-chan error {
	r := &removal{c: c, left: slices.Clone(nodes), done: make(chan error, 1)}
	r.try()
	return r.done
}

// removal is one run of removeAll. Its requests follow one another.
type removal struct {
	c    *client.Client
	left []settle.Node
	gone []settle.Node
	done chan error
}

func (r *removal) try() {
	if len(r.left) == 0 {
		r.end(nil)
		return
	}
	ops := make([]client.Op, len(r.left))
	for i, n := range r.left {
		ops[i] = n.Delete()
	}
	if err := r.c.WriteAsync(r.answered, ops...); err != nil {
		r.end(err)
	}
}

// answered is called by the goroutine that receives answers.
func (r *removal) answered(_ []client.OpResult, err error) {
	if !settle.Missing(err) {
		r.end(err)
		return
	}
	missing := 0
	var e *client.Error
	if len(r.left) > 1 && errors.As(err, &e) {
		missing = e.Index
	}
	if missing < 0 || missing >= len(r.left) {
		r.end(err)
		return
	}
	r.gone = append(r.gone, r.left[missing])
	r.left = slices.Delete(r.left, missing, missing+1)
	r.try()
}

func (r *removal) end(err error) {
	if err == nil && len(r.gone) > 0 {
		err = &goneError{r.gone}
	}
	r.done <- err
}

// goneError names the nodes that somebody else had deleted before.
type goneError struct{ nodes []settle.Node }

func (e *goneError) Error() string { return fmt.Sprintf("%s: %v", e.nodes[0].Path, ErrDeleted) }
