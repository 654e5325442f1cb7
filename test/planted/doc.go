// Package planted shows that the checkers of package check find the bugs that
// package internal/planted can switch on. Its tests are built with the tag
// "planted" only:
//
//	go test -tags planted ./test/planted
package planted
