package main

import (
	"github.com/spf13/cobra"

	"github.com/coordd/coord/internal/demo"
)

func newPausedWorkerCmd(e *env) *cobra.Command {
	d := demonstration{
		use:   "paused-worker",
		short: "A worker is paused, loses its lock, and writes too late",
		long: `Show why a lock needs a fencing token. Worker A takes a lock and is stopped with
SIGSTOP for longer than its session lasts. Worker B takes the lock and writes to a
PostgreSQL that is started for this. A goes on and writes, too. The promise: the
database refuses A's write, and A has been told before.` + demoPlace,
		example: "  coordctl demo paused-worker\n" +
			"  coordctl demo paused-worker --fencing=off",
		layers: []demoLayer{{"fencing", demo.Fence, "A's late write replace B's"}},
		run:    demo.PausedWorker,
	}
	return d.command(e)
}
