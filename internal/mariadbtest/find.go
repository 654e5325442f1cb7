package mariadbtest

import (
	"fmt"
	"os/exec"

	"github.com/coordd/coord/internal/tempserver"
)

// ErrNotInstalled is returned when the machine has no MariaDB server. It matches
// tempserver.ErrNotInstalled.
var ErrNotInstalled = fmt.Errorf("MariaDB is %w (Debian: apt-get install mariadb-server)", tempserver.ErrNotInstalled)

// distributionDirs are places of programs that are not in everybody's PATH.
var distributionDirs = []string{"/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/opt/homebrew/bin", "/usr/local/bin"}

// programs are the two that are needed: the server, and the one that makes the
// directory of its data.
type programs struct{ server, install string }

func findPrograms() (programs, error) {
	server, err := find("mariadbd")
	if err != nil {
		return programs{}, err
	}
	install, err := find("mariadb-install-db")
	if err != nil {
		return programs{}, err
	}
	return programs{server: server, install: install}, nil
}

// find prefers PATH, which is the user's choice.
func find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range distributionDirs {
		if path, err := exec.LookPath(dir + "/" + name); err == nil {
			return path, nil
		}
	}
	return "", ErrNotInstalled
}
