package main

import (
	"github.com/spf13/cobra"

	"github.com/coordd/coord/internal/demo"
)

func newLateReleaseCmd(e *env) *cobra.Command {
	d := demonstration{
		use:   "late-release",
		short: "A worker releases a lock that is another's by now",
		long: `Show that a release takes the lock from nobody else. Worker A takes a lock and is
stopped with SIGSTOP for longer than its session lasts. Worker B takes the lock. A goes
on and releases it, as every worker does at its end, and again as if the answer had been
lost. The promise: A is told that it is not the owner, and B still is.` + demoPlace,
		example: "  coordctl demo late-release\n" +
			"  coordctl demo late-release --owner-check=off",
		layers: []demoLayer{{"owner-check", demo.OwnerCheck, "a release by path free B's lock"}},
		run:    demo.LateRelease,
	}
	return d.command(e)
}
