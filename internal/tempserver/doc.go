// Package tempserver has what throw-away servers of databases have in common:
// they run as an account without rights, in a directory of their own, listen on
// a socket in it and nowhere else, and end with the process that started them.
// Packages pgtest and mariadbtest are made of it.
//
// Everything may be called from any goroutine. Signals go to processes that this
// package started, nothing else. Only Linux can end a server whose parent died;
// elsewhere it stays.
package tempserver
