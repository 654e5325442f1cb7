package chaos

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/coordd/coord/test/internal/child"
	"github.com/coordd/coord/test/internal/smalldisk"
)

var (
	kills  = flag.Int("kills", 50, "how many servers TestKills kills")
	points = flag.Int("points", 24, "at how many system calls TestKillAtSystemCalls kills a server")
	store  = flag.String("store", "", "where servers keep the log: wal or boltdb; empty: chance says")
	keep   = flag.Bool("keep", false, "keep what a run leaves, also if it passes")
	length = flag.Duration("length", 40*time.Second, "how long TestFaultsOfAllKinds disturbs clusters")
)

func TestMain(m *testing.M) {
	// Before anything else: it runs this program again.
	if err := smalldisk.Private(); err != nil {
		fmt.Fprintln(os.Stderr, err) // tests that need it say so
	}
	code := m.Run()
	child.Clean()
	os.Exit(code)
}

func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("whole clusters of processes are not part of the quick tests")
	}
}
