package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/test/internal/smalldisk"
)

var (
	seedFlag = flag.Uint64("seed", 0, "of chance; 0: another one each time")
	kills    = flag.Int("kills", 50, "how many servers TestKills kills")
	points   = flag.Int("points", 24, "at how many system calls TestKillAtSystemCalls kills a server")
	store    = flag.String("store", "", "where servers keep the log: wal or boltdb; empty: chance says")
	keep     = flag.Bool("keep", false, "keep what a run leaves, also if it passes")
	length   = flag.Duration("length", 44*time.Second, "how long TestFaultsOfAllKinds disturbs clusters")
)

func TestMain(m *testing.M) {
	// Before anything else: it runs this program again.
	if err := smalldisk.Private(); err != nil {
		fmt.Fprintln(os.Stderr, err) // tests that need it say so
	}
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// built is the server under test, made once for the whole run.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func coordd(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "coord-chaos-bin-"); built.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", built.dir, "github.com/coordd/coord/cmd/coordd").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("go build coordd: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "coordd")
}

func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("whole clusters of processes are not part of the quick tests")
	}
}

// seed is that of a test, printed.
func seed(t *testing.T) uint64 {
	t.Helper()
	s := *seedFlag
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	return s
}
