package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/coordd/coord/internal/tempserver"
)

// ErrNotInstalled is returned when the machine has no PostgreSQL server. It
// matches tempserver.ErrNotInstalled.
var ErrNotInstalled = fmt.Errorf("PostgreSQL is %w (Debian: apt-get install postgresql)", tempserver.ErrNotInstalled)

// distributionDirs are the places where packages put the programs without
// adding them to PATH, with the version as the part that varies.
var distributionDirs = []string{
	"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
	"/usr/pgsql-*/bin",          // packages for Red Hat
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
}

// binDir returns the directory that has both programs needed. It prefers PATH,
// which is the user's choice, and then the newest version.
func binDir() (string, error) {
	if dir, err := fromPath(); err == nil {
		return dir, nil
	}
	var dirs []string
	for _, pattern := range distributionDirs {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", fmt.Errorf("pattern %s: %w", pattern, err)
		}
		dirs = append(dirs, found...)
	}
	return newest(dirs)
}

// fromPath follows links, because the programs find their libraries and
// templates relative to where they really are.
func fromPath() (string, error) {
	path, err := exec.LookPath("postgres")
	if err != nil {
		return "", err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	dir := filepath.Dir(path)
	if !complete(dir) {
		return "", ErrNotInstalled
	}
	return dir, nil
}

func newest(dirs []string) (string, error) {
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return !complete(dir) })
	if len(dirs) == 0 {
		return "", ErrNotInstalled
	}
	return slices.MaxFunc(dirs, func(a, b string) int { return version(a) - version(b) }), nil
}

// version returns the first number in dir, which is the major version in all
// distributionDirs, or 0.
func version(dir string) int {
	other := func(r rune) bool { return r < '0' || r > '9' }
	for _, number := range strings.FieldsFunc(dir, other) {
		if n, err := strconv.Atoi(number); err == nil {
			return n
		}
	}
	return 0
}

func complete(dir string) bool {
	return runnable(filepath.Join(dir, "postgres")) && runnable(filepath.Join(dir, "initdb"))
}

func runnable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
