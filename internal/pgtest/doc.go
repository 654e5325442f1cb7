// Package pgtest runs a throw-away PostgreSQL server of its own, for tests and
// for the demonstration of fencing. It needs the server's programs on the
// machine (Debian: package postgresql) and no rights, no port and no running
// service: the server listens on a socket in a directory that only its user can
// enter. Close stops it and deletes its data. If the process that started it
// dies first, the kernel stops the server (on Linux) and only the directory
// stays.
//
// It is not for data that anyone wants to keep: nothing is forced to the disk.
//
// Start and Get may be called from any goroutine. Stop signals go to process ids
// that this package started, nothing else.
package pgtest
