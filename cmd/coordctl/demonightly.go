package main

import (
	"github.com/spf13/cobra"

	"github.com/coordd/coord/internal/demo"
)

func newNightlyJobCmd(e *env) *cobra.Command {
	d := demonstration{
		use:   "nightly-job",
		short: "Five hosts want to run a job, and one run a night counts",
		long: `Show a job that five hosts want to run once a night, writing to a PostgreSQL that is
started for this. In the first night the host that runs it is killed with SIGKILL in the
middle of it; in the second after it has written, before it could say that it is done; in
the third nobody is. The promise: each night has one applied run, and a mark that says
who has done it, under which token.` + demoPlace,
		example: "  coordctl demo nightly-job\n" +
			"  coordctl demo nightly-job --once=off",
		layers: []demoLayer{
			{"once", demo.Once, "each host run the job for itself"},
			{"idempotency", demo.Idempotency, "a killed run made again"},
		},
		run: demo.NightlyJob,
	}
	return d.command(e)
}
