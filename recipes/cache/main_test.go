package cache

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println(err)
			code = 1
		}
	}
	os.Exit(code)
}

// fake runs f in fake time with a cluster of n servers.
func fake(t *testing.T, n int, f func(t *testing.T, c *fakecoord.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, fakecoord.New(t, n)) })
}

func connect(t *testing.T, c *fakecoord.Cluster, opts ...client.Option) *client.Client {
	t.Helper()
	began := time.Now()
	opts = append([]client.Option{
		client.WithGRPCOptions(c.DialOption()), client.WithLogger(slog.New(slog.DiscardHandler)),
		client.WithClock(func() time.Duration { return time.Since(began) + time.Hour }),
	}, opts...)
	cl, err := client.Dial(t.Context(), c.Target(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	return cl
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// random is a source whose seed is printed; COORD_SEED repeats a run.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s, err := strconv.ParseUint(os.Getenv("COORD_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("COORD_SEED=%d", seed)
	return newRand(seed)
}
