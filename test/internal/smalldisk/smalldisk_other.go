//go:build !linux

package smalldisk

import "errors"

// ErrUnsupported is returned where no file system can be made.
var ErrUnsupported = errors.New("no file systems for tests here: only on Linux")

// Private does nothing.
func Private() error { return nil }
