package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/internal/demo"
)

func newLayersCmd(e *env) *cobra.Command {
	var without []string
	names := []string{string(demo.Lock), string(demo.Fence), string(demo.Idempotency)}
	d := demonstration{
		use:   "layers",
		short: "What a lock, a fence and idempotency each stop",
		long: `Show that three layers stop three different things: a lock keeps work from being done
twice at once, a fence keeps a former holder's write from replacing a newer one, and
idempotency keeps one operation from being applied twice. A schedule is played against
each, on a PostgreSQL that is started for this. The promise: with all three there is no
anomaly, and without one of them there is that one's and no other.` + demoPlace,
		example: "  coordctl demo layers\n" +
			"  coordctl demo layers --without=fence",
		run: func(ctx context.Context, o demo.Options) error {
			for _, name := range without {
				if !slices.Contains(names, name) {
					return usagef("--without: %q is none of %s", name, strings.Join(names, ", "))
				}
				o.Without = append(o.Without, demo.Layer(name))
			}
			return demo.Layers(ctx, o)
		},
	}
	cmd := d.command(e)
	cmd.Flags().StringSliceVar(&without, "without", nil, "leave a layer out: "+strings.Join(names, ", "))
	return cmd
}
