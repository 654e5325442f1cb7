package mariadbtest

import (
	"fmt"
	"testing"

	"github.com/coordd/coord/internal/tempserver"
)

// recorder notes how Get ended. Skipf and Fatalf return, unlike the real ones,
// which is all right for what Get does after them.
type recorder struct{ skipped, failed string }

func (r *recorder) Helper()                           {}
func (r *recorder) Cleanup(func())                    {}
func (r *recorder) Fatalf(format string, args ...any) { r.failed = fmt.Sprintf(format, args...) }
func (r *recorder) Errorf(format string, args ...any) { r.failed = fmt.Sprintf(format, args...) }
func (r *recorder) Skipf(format string, args ...any)  { r.skipped = fmt.Sprintf(format, args...) }

func TestMissingServerSkipsOrFailsWhereRequired(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // the machine looks as if it had no MariaDB
	saved := distributionDirs
	distributionDirs = nil
	t.Cleanup(func() { distributionDirs = saved })
	for name, c := range map[string]struct {
		ci, require string
		failure     bool
	}{
		"at home":  {"", "", false},
		"in CI":    {"true", "", true},
		"required": {"", "1", true},
	} {
		t.Setenv("CI", c.ci)
		t.Setenv(tempserver.EnvRequire, c.require)
		r := new(recorder)
		Get(r, Options{})
		if (r.failed != "") != c.failure || (r.skipped != "") == c.failure {
			t.Errorf("%s: skipped %q, failed %q", name, r.skipped, r.failed)
		}
	}
}
