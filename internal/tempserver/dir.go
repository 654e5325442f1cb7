package tempserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// maxSocketPath is how long the path of a socket may be on every system, in
// bytes.
const maxSocketPath = 103

// MakeDir makes a directory that only the account (and root) can enter, below
// parent or, if that is empty, the system's directory for temporary files. Its
// name begins with prefix, and there is room for a socket of the given name.
func (a Account) MakeDir(parent, prefix, socket string) (string, error) {
	dir, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return "", err
	}
	if path := filepath.Join(dir, socket); len(path) > maxSocketPath {
		return "", errors.Join(fmt.Errorf("the path %s is too long for a socket, set TMPDIR to a shorter one", path), os.Remove(dir))
	}
	if err := a.own(dir); err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return dir, nil
}
