package child

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// built are the programs under test, made once for the whole run.
var built = struct {
	mu   sync.Mutex
	dir  string // "" until something was built
	done map[string]error
}{done: map[string]error{}}

// Program builds one of the programs under cmd, once, and returns its path: for
// NAME:TAG that of the program with a build tag. All are in one directory, which
// Clean removes. It fails the test if the program cannot be built.
func Program(t testing.TB, name string) string {
	t.Helper()
	dir := Dir(t)
	built.mu.Lock()
	defer built.mu.Unlock()
	err, tried := built.done[name]
	if !tried {
		err = build(dir, name)
		built.done[name] = err
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

func build(dir, name string) error {
	base, tag, _ := strings.Cut(name, ":")
	cmd := exec.Command("go", "build", "-tags", tag, "-o", filepath.Join(dir, name), "github.com/coordd/coord/cmd/"+base)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", name, err, out)
	}
	return nil
}

// Dir is where the programs are, and for what else is to go when the run ends.
func Dir(t testing.TB) string {
	t.Helper()
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "coord-test-bin-")
		if err != nil {
			t.Fatal(err)
		}
		built.dir = dir
	}
	return built.dir
}

// Clean removes what was built. TestMain calls it when all tests are over.
func Clean() {
	built.mu.Lock()
	defer built.mu.Unlock()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir) // what is left of it is in a temporary directory
	}
}
