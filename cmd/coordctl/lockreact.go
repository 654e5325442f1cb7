package main

import (
	"fmt"
	"os/exec"
	"strings"
)

// react lets the command go on without the lock, and starts the one of
// --on-lost exec:CMD. Its end is not waited for, so that signals are still
// passed on.
func (c *lockedChild) react() {
	line, ok := strings.CutPrefix(c.options.onLost, "exec:")
	if !ok {
		c.warn("%s goes on without the lock (--on-lost warn)", c.argv0)
		return
	}
	reaction := exec.Command("/bin/sh", "-c", line)
	reaction.Env = append(c.environment, fmt.Sprintf("COORD_CHILD_PID=%d", c.pid))
	reaction.Stdout, reaction.Stderr = c.stderr, c.stderr
	if err := reaction.Start(); err != nil {
		c.warn("--on-lost %q: %v", line, err)
		return
	}
	go func() {
		if err := reaction.Wait(); err != nil {
			c.warn("--on-lost %q: %v", line, err)
		}
	}()
}
