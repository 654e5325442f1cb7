package member_test

import (
	"context"
	"fmt"
	"log"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/recipes/member"
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

func ExampleGroup_Watch() {
	withClients(func(ctx context.Context, a, b *client.Client) {
		m, err := member.New(a, "/services/search").Join(ctx, "search-3", []byte("10.0.3.7:9200"))
		if err != nil {
			fmt.Println(err)
			return
		}
		for list, err := range member.New(b, "/services/search").Watch(ctx) {
			if err != nil {
				fmt.Println(err)
				return
			}
			if len(list) == 0 {
				fmt.Println("nobody is there")
				return
			}
			for _, one := range list {
				fmt.Printf("%s at %s\n", one.ID, one.Data)
			}
			if string(list[0].Data) == "10.0.3.7:9200" {
				err = m.SetData(ctx, []byte("10.0.3.8:9200"))
			} else {
				err = m.Leave(ctx)
			}
			if err != nil {
				fmt.Println(err)
			}
		}
	})
	// Output:
	// search-3 at 10.0.3.7:9200
	// search-3 at 10.0.3.8:9200
	// nobody is there
}

// A program that is started anew while its predecessor's session still lives
// need not wait for that to expire.
func ExampleTakeOver() {
	withClients(func(ctx context.Context, before, after *client.Client) {
		old, err := member.New(before, "/workers").Join(ctx, "worker-1", nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		fresh, err := member.New(after, "/workers").Join(ctx, "worker-1", nil, member.TakeOver())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(fresh.Session() == after.Session().ID())
		<-old.Context().Done()
		fmt.Println(old.Session() == 0)
		fmt.Println(fresh.Leave(ctx))
	})
	// Output:
	// true
	// true
	// <nil>
}
