package cluster

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	bbolt "go.etcd.io/bbolt/errors"
)

// errDamaged is returned when what a file of the data directory holds is not what
// was written. It comes with the file, with what was expected, and with what to
// do.
var errDamaged = errors.New("damaged")

// whatToDo ends the message about a damaged file.
const whatToDo = "remove the data directory and start again, this server will rejoin as new; " +
	"if no majority of the servers has its data any more, see coordd recover"

// refusals are what an operating system answers whatever is in a file: rights,
// room, a file in use, a disk that is broken. Everything else that it says of a
// file (it is missing, or there, or no directory) comes from names and sizes that
// were read from another one.
var refusals = []syscall.Errno{
	syscall.EACCES, syscall.EPERM, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.EMFILE, syscall.ENFILE,
	syscall.ENOMEM, syscall.EBUSY, syscall.EAGAIN, syscall.EINTR, syscall.ETIMEDOUT, syscall.ESTALE, syscall.ENXIO, syscall.ENODEV,
}

// settings are refusals that do not come from damage, and say by themselves what to
// do.
var settings = []error{errDirInUse, errWrongLogStore, errOtherServer, errRecovering, errDiskNotWhole, bbolt.ErrTimeout}

// asDamage says of an error that a store gave when it was opened whether the file
// is to blame. What the operating system refuses says nothing about what is in it.
func asDamage(path string, err error) error {
	if err == nil || errors.Is(err, errDamaged) || isRefusal(err) {
		return err
	}
	return fmt.Errorf("%s: %w: %w: %s", path, errDamaged, err, whatToDo)
}

func isRefusal(err error) bool {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return slices.Contains(refusals, errno)
	}
	return slices.ContainsFunc(settings, func(s error) bool { return errors.Is(err, s) })
}

// explained is where every error of opening the directory dir goes through, so that
// none is without the place that it is about, nor, if it is not the system that
// refuses something, without what to do.
func explained(dir string, err error) error {
	if err == nil {
		return nil
	}
	err = asDamage(dir, err)
	text := err.Error()
	if errors.Is(err, errDamaged) && !strings.Contains(text, whatToDo) && !errors.Is(err, errDiskNotWhole) {
		err = fmt.Errorf("%w: %s", err, whatToDo)
	}
	if !strings.Contains(text, dir) {
		err = fmt.Errorf("%s: %w", dir, err)
	}
	return err
}

// guarded runs f and turns a panic, and a read of a mapped page that is not there,
// into an error about the file at path.
func guarded(path string, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %w: %v: %s", path, errDamaged, p, whatToDo)
		}
	}()
	return f()
}
