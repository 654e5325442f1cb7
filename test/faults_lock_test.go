package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

func acquire(t testing.TB, m *lock.Mutex) *lock.Handle {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	h, err := m.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// waitQueue waits until the queue of a held lock has so many entries.
func waitQueue(ctx context.Context, t testing.TB, h *lock.Handle, want int) {
	t.Helper()
	poll(t, 30*time.Second, "the queue", func() error {
		names, err := h.Session().Client().Children(ctx, h.Path(), client.Mode(client.ReadSession))
		if err == nil && len(names) != want {
			err = fmt.Errorf("%d entries, want %d", len(names), want)
		}
		return err
	})
}
