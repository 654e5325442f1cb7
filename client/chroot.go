package client

import (
	"fmt"
	"strings"

	"github.com/coordd/coord/znode"
)

// chroot is the path that a client's paths are relative to; "" for none.
type chroot string

// full makes a caller's path into the cluster's.
func (r chroot) full(p string) string {
	switch {
	case r == "":
		return p
	case p == "/":
		return string(r)
	default:
		return string(r) + p
	}
}

// strip makes a path of the cluster into the caller's. A path outside of the
// chroot, which no request of this client can lead to, is left as it is.
func (r chroot) strip(p string) string {
	if r == "" {
		return p
	}
	rest, ok := strings.CutPrefix(p, string(r))
	switch {
	case !ok || rest != "" && rest[0] != '/':
		return p
	case rest == "":
		return "/"
	default:
		return rest
	}
}

// check refuses a malformed path before it costs a round trip and a number.
// The path of a sequential node may end in a slash: a number is put behind it.
func (r chroot) check(p string, sequential bool) (full string, err error) {
	whole := p
	if sequential {
		whole += "0"
	}
	if err := znode.ValidatePath(whole); err != nil {
		return "", fmt.Errorf("%w", err)
	}
	return r.full(p), nil
}
