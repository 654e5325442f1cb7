package zkimport

import (
	"errors"
	"fmt"
	"strings"

	"github.com/coordd/coord/wire"
)

// ErrRefused is returned when a znode that was readable is not any more.
var ErrRefused = errors.New("the ensemble refuses to show a znode")

// sourceError names the znode in an answer of the ensemble. Other errors are left
// as they are.
func sourceError(path string, err error) error {
	var code wire.Code
	if errors.As(err, &code) {
		return fmt.Errorf("%w: %s: %w", ErrRefused, path, code)
	}
	return err
}

func parentOf(path string) string {
	return path[:max(strings.LastIndexByte(path, '/'), 1)]
}
