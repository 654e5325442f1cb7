package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/recipes/election"
	"github.com/coordd/coord/recipes/lock"
)

// withClients runs f with two clients of a server of its own.
func withClients(f func(ctx context.Context, a, b *client.Client)) {
	ctx := context.Background()
	lc, err := localcluster.Start(ctx, localcluster.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = lc.Close() }()
	var cs [2]*client.Client
	for i := range cs {
		if cs[i], err = client.Dial(ctx, lc.Target()); err != nil {
			log.Fatal(err)
		}
		defer func() { _ = cs[i].Close() }()
	}
	f(ctx, cs[0], cs[1])
}

func ExampleElection_Run() {
	withClients(func(ctx context.Context, a, b *client.Client) {
		finished := errors.New("finished")
		e := election.New(a, "/election/scheduler", lock.Owner("scheduler-1"))
		err := e.Run(ctx, []byte("10.0.3.7:8080"), func(ctx context.Context, l *election.Leadership) error {
			leader, err := election.New(b, "/election/scheduler").Leader(ctx)
			fmt.Printf("%s leads at %s: %v\n", leader.Owner, leader.Value, err)
			fmt.Println(leader.Token == l.FencingToken())
			return finished // without an error, it would go to the end of the queue
		})
		fmt.Println(err)
		_, err = e.Leader(ctx)
		fmt.Println(err)
	})
	// Output:
	// scheduler-1 leads at 10.0.3.7:8080: <nil>
	// true
	// finished
	// election: no leader: /election/scheduler
}

func ExampleElection_Observe() {
	withClients(func(ctx context.Context, a, b *client.Client) {
		leading, err := election.New(a, "/election/scheduler").Campaign(ctx, []byte("starting"))
		if err != nil {
			fmt.Println(err)
			return
		}
		for leader, err := range election.New(b, "/election/scheduler").Observe(ctx) {
			switch {
			case err != nil:
				fmt.Println(err)
				return
			case leader.None():
				fmt.Println("nobody leads")
				return
			}
			fmt.Printf("the leader is %s\n", leader.Value)
			if string(leader.Value) == "starting" {
				err = leading.Proclaim(ctx, []byte("ready"))
			} else {
				err = leading.Resign(ctx)
			}
			if err != nil {
				fmt.Println(err)
			}
		}
	})
	// Output:
	// the leader is starting
	// the leader is ready
	// nobody leads
}
