//go:build planted

package lock

import (
	"path"
	"strconv"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/internal/planted"
)

func init() {
	planted.Register(planted.TokenFromSequence, func(x ...any) {
		h := x[0].(*Handle)
		name := path.Base(h.held.Path)
		n, _ := strconv.ParseUint(name[max(0, len(name)-10):], 10, 64)
		h.token = fence.Token(n + 1) // 0 is no token
	})
}
