package tempserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// Account is the user that a server runs as. The zero Account is the caller's
// own.
type Account struct{ credential *syscall.Credential }

// Unprivileged returns the account for a server: servers of databases refuse to
// run as root, so root lends them one that has no rights, the first of names
// that exists. Others run them as themselves.
func Unprivileged(names ...string) (Account, error) {
	if os.Geteuid() != 0 {
		return Account{}, nil
	}
	var errs []error
	for _, name := range names {
		credential, err := lookup(name)
		if err == nil {
			return Account{credential: credential}, nil
		}
		errs = append(errs, err)
	}
	return Account{}, fmt.Errorf("root cannot run the server and there is no account to lend it: %w", errors.Join(errs...))
}

func lookup(name string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: uid %q: %w", name, u.Uid, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: gid %q: %w", name, u.Gid, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// own gives path to the account.
func (a Account) own(path string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(path, int(a.credential.Uid), int(a.credential.Gid))
}

// command makes a command that runs as the account in dir and gets signal when
// its parent dies.
func (a Account) command(ctx context.Context, dir string, signal syscall.Signal, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	// All else is left out: it could lead the program to another server or tongue.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = a.attributes(signal)
	return cmd
}
