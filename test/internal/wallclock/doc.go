// Package wallclock sets the wall clock of one running process, for tests: a
// container without a clock of its own, or a machine whose clock was set. The
// process needs no preparation, and its monotonic clock is left alone.
//
// Programs read the time in the vDSO, a page of code that the kernel maps into
// each process. Of makes the function there jump to one that asks the kernel, and
// adds an offset when the wall clock was asked for: Step sets it. The page is the
// process's own from then on; nobody else sees the change.
package wallclock
