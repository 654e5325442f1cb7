package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/zkimport"
)

func newImportZooKeeperCmd(e *env) *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "zookeeper HOSTS",
		Short: "Copy a subtree of a ZooKeeper ensemble into the cluster",
		Long: `Copy a subtree of a live ZooKeeper ensemble into the cluster: data, ACLs, quotas and
sequence counters, so that no number of a sequential znode is given a second time.

` + importSourceHelp + `

Nothing is written before everything was read: what the cluster could not take is
named, and then nothing is copied at all (exit code 4, or 5 if it is all for want
of rights). Such are data and paths past the cluster's limits, ACLs that it does
not know, and znodes that are there already and differ; --overwrite sets those.
--dry-run only says what would be done.

An import that was interrupted is run again: it finds what is there and goes on.
If all is there, it does nothing.

Not copied are ephemeral znodes, which are named, and /zookeeper. Containers and
znodes with a TTL become persistent, since ZooKeeper does not tell which they are.
Versions and times begin anew.

To write below ACLs that do not let everybody do so, be a superuser of the cluster
(--auth-file or --cert). Nobody should write to the ensemble meanwhile: the copy is
that of one moment only then. 'coordctl import verify zookeeper' tells afterwards.`,
		Example: "  coordctl import zookeeper zk1:2181,zk2:2181 --dry-run --source-auth-file super.auth\n" +
			"  coordctl import zookeeper zk1:2181 && coordctl import verify zookeeper zk1:2181\n" +
			"  coordctl import zookeeper zk1:2181 --path /kafka --under /old/kafka",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(e, args[0]); err != nil {
				return err
			}
			return as("import zookeeper", e.importZooKeeper(cmd.Context(), &o))
		},
	}
	o.addSourceFlags(cmd.Flags())
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only say what would be done")
	cmd.Flags().BoolVar(&o.overwrite, "overwrite", false, "set znodes that are there and differ")
	return cmd
}

func (e *env) importZooKeeper(ctx context.Context, o *importOptions) error {
	var plan *zkimport.Plan
	item := newImportItem(o)
	err := e.survey(ctx, o, func(ctx context.Context, v *zkimport.Survey, c *client.Client, t *teller) error {
		var err error
		if plan, err = v.Plan(ctx, c, zkimport.Options{Under: o.under, Overwrite: o.overwrite}); err != nil {
			return err
		}
		item.plan(v, plan)
		if o.dryRun || !plan.Ready() {
			return nil
		}
		t.hide()
		if err := e.confirmOverwrite(plan); err != nil {
			return err
		}
		t.show()
		r, err := plan.Run(ctx, c)
		item.done(&r)
		return err
	})
	if err != nil && item.started {
		e.note("%s copied before this; run it again to go on", plural(item.Copied, "znode"))
	}
	if err != nil {
		return err
	}
	if err := e.printImport(item); err != nil {
		return err
	}
	return refusal(plan)
}

// confirmOverwrite asks before anything is lost.
func (e *env) confirmOverwrite(p *zkimport.Plan) error {
	if p.Overwrite == 0 {
		return nil
	}
	t, err := e.resolve()
	if err != nil {
		return err
	}
	want := ""
	if t.Protected {
		want = "overwrite"
	}
	return e.confirm("import --overwrite", fmt.Sprintf("%s will be overwritten. This cannot be undone.", plural(p.Overwrite, "znode")), want, t.Protected)
}

var errRefused = errors.New("nothing was written")

// refusal is the error of a plan that is not carried out.
func refusal(p *zkimport.Plan) error {
	if p.Ready() {
		return nil
	}
	code := exitNotPermitted
	if len(p.Conflicts) > 0 {
		code = exitPrecondition
	}
	for _, f := range p.Faults {
		if f.Kind != zkimport.FaultRead && f.Kind != zkimport.FaultRights {
			code = exitPrecondition
		}
	}
	return &codedError{code, fmt.Errorf("import zookeeper: %w: %s cannot be copied, %d are there and differ\nhint: %s",
		errRefused, plural(len(p.Faults), "znode"), len(p.Conflicts), advice(p))}
}

// advice says what to do about the first thing that is in the way.
func advice(p *zkimport.Plan) string {
	if len(p.Faults) == 0 {
		return "--overwrite sets those that differ; --under puts the copy elsewhere"
	}
	switch f := p.Faults[0]; {
	case f.Limit != "":
		return "raise " + f.Limit + " on all servers, or delete the znode there"
	case f.Kind == zkimport.FaultRead:
		return "--source-auth-file with the ensemble's superuser (or whoever may read it and has ADMIN)"
	case f.Kind == zkimport.FaultRights:
		return "--auth-file with a superuser of the cluster"
	default:
		return "--path leaves it out"
	}
}
