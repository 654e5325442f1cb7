package main

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// Once a lock has gone on to the next holder its former token is never said to be
// valid, whoever asks, and that of the holder always is.
func TestTokenIsNeverValidAfterTheHandover(t *testing.T) {
	t.Parallel()
	fresh(t, "/lchk")
	ctx := t.Context()
	var clients [2]*client.Client
	for i := range clients {
		c, err := client.Dial(ctx, sharedCluster(t).Target())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients[i] = c
	}
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	held, err := lock.New(clients[0], "/lchk").Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= rounds; i++ {
		token := held.FencingToken().String()
		on(t, "", "locks", "check", "/lchk", "--token", token).want(t, exitOK, "~valid: token "+token+" of /lchk, held by ", "")
		next := make(chan *lock.Handle, 1)
		var handedOver atomic.Bool
		go func() {
			h, err := lock.New(clients[i%2], "/lchk").Acquire(ctx)
			if err != nil {
				t.Error(err)
			}
			handedOver.Store(true)
			next <- h
		}()
		asking := make(chan struct{})
		go func() {
			defer close(asking)
			for end := time.Now().Add(60 * time.Millisecond); time.Now().Before(end); {
				late := handedOver.Load() // before it is asked
				if r := on(t, "", "locks", "check", "/lchk", "--token", token); late && r.code != exitPrecondition {
					t.Errorf("after the handover: exit code %d, %s", r.code, r.stdout)
				}
			}
		}()
		time.Sleep(20 * time.Millisecond)
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if held = <-next; held == nil {
			return
		}
		on(t, "", "locks", "check", "/lchk", "--token", token).want(t, exitPrecondition, "~stale: token "+token, "")
		<-asking
	}
	if err := held.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	on(t, "", "locks", "check", "/lchk", "--token", held.FencingToken().String()).want(t, exitPrecondition, "~; nobody holds it", "")
}

// Tokens of those that wait, and of nobody, are told apart; a reader's is valid
// beside another's.
func TestTokensOfWaitersAndReaders(t *testing.T) {
	t.Parallel()
	fresh(t, "/lchkw")
	holding(t, sharedCluster(t), "/lchkw/m")
	w := lockCmd(t, "/lchkw/m", "true")
	eventually(t, "somebody waits", func() bool { return strings.Count(must(t, "ls", "/lchkw/m"), "\n") == 2 })
	var waiting string
	for line := range strings.Lines(must(t, "locks", "show", "-o", "wide", "--no-headers", "/lchkw/m")) {
		if f := strings.Fields(line); len(f) > 0 && f[0] == "1" {
			waiting = f[len(f)-2]
		}
	}
	on(t, "", "locks", "check", "/lchkw/m", "--token", waiting).want(t, exitPrecondition, "~waiting: token ", "")
	on(t, "", "locks", "check", "/lchkw/m", "--token", "9223372036854775807").want(t, exitPrecondition, "~unknown: token ", "")
	for range 2 {
		r := lockCmd(t, "--shared", "/lchkw/rw", "sh", "-c", "echo $COORD_FENCING_TOKEN; exec sleep 60")
		eventually(t, "it reads", func() bool { return strings.HasSuffix(r.stdout.String(), "\n") })
		on(t, "", "locks", "check", "/lchkw/rw", "--token", strings.TrimSpace(r.stdout.String())).want(t, exitOK, "~valid: ", "")
	}
	endIt(t, w)
}

// The token may come from the environment, as a command under a lock has it.
func TestTokenToCheckFromTheEnvironment(t *testing.T) {
	t.Setenv("COORD_FENCING_TOKEN", "7")
	on(t, "", "locks", "check", "/lchk-env").want(t, exitPrecondition, "stale: token 7 of /lchk-env; nobody holds it\n", "")
}
