package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/coordd/coord/internal/tempserver"
)

// recorder notes how Get ended. Skipf and Fatalf return, unlike the real ones,
// which is all right for what Get does after them.
type recorder struct {
	skipped, failed string
	cleanups        []func()
}

func (r *recorder) Helper()                           {}
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Fatalf(format string, args ...any) { r.failed = fmt.Sprintf(format, args...) }
func (r *recorder) Errorf(format string, args ...any) { r.failed = fmt.Sprintf(format, args...) }
func (r *recorder) Skipf(format string, args ...any)  { r.skipped = fmt.Sprintf(format, args...) }

// hideServer makes the machine look as if it had no PostgreSQL.
func hideServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	saved := distributionDirs
	distributionDirs = nil
	t.Cleanup(func() { distributionDirs = saved })
}

func TestMissingServerSkipsWithTheReason(t *testing.T) {
	hideServer(t)
	t.Setenv("CI", "")
	t.Setenv(tempserver.EnvRequire, "")
	r := new(recorder)
	Get(r, Options{})
	if r.skipped == "" || r.failed != "" {
		t.Errorf("skipped %q, failed %q: want a skip", r.skipped, r.failed)
	}
}

func TestMissingServerFailsWhereRequired(t *testing.T) {
	for name, env := range map[string][2]string{"CI": {"CI", "true"}, "required": {tempserver.EnvRequire, "1"}} {
		t.Run(name, func(t *testing.T) {
			hideServer(t)
			t.Setenv("CI", "")
			t.Setenv(env[0], env[1])
			r := new(recorder)
			Get(r, Options{})
			if r.failed == "" || r.skipped != "" {
				t.Errorf("skipped %q, failed %q: want a failure", r.skipped, r.failed)
			}
		})
	}
}

func TestNewestVersionIsTaken(t *testing.T) {
	root := t.TempDir()
	var dirs []string
	for _, v := range []string{"9", "15", "17", "16"} {
		dir := filepath.Join(root, v)
		dirs = append(dirs, dir)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, program := range []string{"postgres", "initdb"} {
			if v == "17" && program == "initdb" {
				continue // an installation that is not whole
			}
			if err := os.WriteFile(filepath.Join(dir, program), nil, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The temporary directory's own name has digits: compare below it.
	if got := version("/usr/lib/postgresql/15/bin"); got != 15 {
		t.Errorf("version = %d, want 15", got)
	}
	t.Chdir(root)
	got, err := newest([]string{"9", "15", "17", "16"})
	if err != nil || got != "16" {
		t.Errorf("newest = %q, %v, want 16, the newest that is whole of %v", got, err, dirs)
	}
	if _, err := newest(nil); err == nil {
		t.Error("newest of nothing: want an error")
	}
}

func TestConnectionStringQuotesOddPaths(t *testing.T) {
	s := &Server{dir: `/tmp/it's \ here`}
	want := `host='/tmp/it\'s \\ here' port=5432 user=coord dbname='a b' sslmode=disable`
	if got := s.DSN("a b"); got != want {
		t.Errorf("DSN = %s\nwant  %s", got, want)
	}
}
