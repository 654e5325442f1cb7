package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account is the user that the server runs as. The zero account is the caller's
// own.
type account struct{ credential *syscall.Credential }

// unprivileged returns the account for the server: PostgreSQL refuses to run as
// root, so root lends it one that has no rights.
func unprivileged() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	var errs []error
	for _, name := range []string{"postgres", "nobody"} {
		credential, err := lookup(name)
		if err == nil {
			return account{credential: credential}, nil
		}
		errs = append(errs, err)
	}
	return account{}, fmt.Errorf("root cannot run PostgreSQL and there is no account to lend it: %w", errors.Join(errs...))
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
func (a account) own(path string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(path, int(a.credential.Uid), int(a.credential.Gid))
}
