package main

import (
	"github.com/spf13/cobra"

	"github.com/coordd/coord/internal/demo"
)

func newDoubleClickCmd(e *env) *cobra.Command {
	d := demonstration{
		use:   "double-click",
		short: "One payment is asked for twice, under two good tokens",
		long: `Show what fencing cannot stop. A payment is asked for twice; two nodes take the lock
one after the other, and both have a token that is good. It is made again with both in
the database at once, and with the first of them failing there. The promise: the money
moves once for each payment, and the second attempt gets the first one's result.` + demoPlace,
		example: "  coordctl demo double-click\n" +
			"  coordctl demo double-click --idempotency=off",
		layers: []demoLayer{{"idempotency", demo.Idempotency, "the payment made twice"}},
		run:    demo.DoubleClick,
	}
	return d.command(e)
}
