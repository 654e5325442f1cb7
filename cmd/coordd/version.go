package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/internal/buildinfo"
)

func newVersionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), buildinfo.Line("coordd"))
			return err
		},
	}
}
