// Package mariadbtest runs a throw-away MariaDB server of its own, for tests of
// what is written for MySQL and MariaDB. It needs the server's programs on the
// machine (Debian: package mariadb-server) and no rights, no port and no running
// service: the server listens on a socket in a directory that only its user can
// enter. Close stops it and deletes its data. If the process that started it
// dies first, the kernel kills the server (on Linux) and only the directory
// stays.
//
// It is not for data that anyone wants to keep: nothing is forced to the disk.
//
// Start and Get may be called from any goroutine.
package mariadbtest
