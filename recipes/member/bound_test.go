package member_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/coordtest"
	"github.com/coordd/coord/recipes/member"
)

// TestDeadMembersAreGoneInTime on real servers: of five members two vanish. Both
// are out of the list within their session's timeout and a slack, also when the
// cluster's leader dies with them, and nobody else is. Members whose links blink
// for less than the timeout stay.
func TestDeadMembersAreGoneInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, slack = 6 * time.Second, 4 * time.Second
		c := coordtest.StartCluster(t, 3)
		var clients []*client.Client
		for i := range 5 {
			cl := c.Dial(client.WithSessionTimeout(timeout))
			clients = append(clients, cl)
			if _, err := member.New(cl, "/g").Join(t.Context(), fmt.Sprint("m", i), nil); err != nil {
				t.Fatal(err)
			}
		}
		lists := make(chan []member.Member, 100)
		watching := c.Dial(client.WithSessionTimeout(time.Minute))
		go func() {
			for list, err := range member.New(watching, "/g").Watch(t.Context()) {
				if err != nil {
					return
				}
				lists <- list
			}
		}()
		if list := <-lists; len(list) != 5 {
			t.Fatalf("%d members", len(list))
		}
		for range 3 {
			for _, cl := range clients {
				heal := c.Partition(cl)
				time.AfterFunc(timeout/3, heal)
			}
			time.Sleep(2 * timeout)
		}
		if len(lists) != 0 {
			t.Fatalf("a blinking link made a change: %v", <-lists)
		}
		c.Partition(clients[1])
		c.Partition(clients[3])
		c.Kill(c.Leader())
		began := time.Now()
		for {
			list := <-lists
			if len(list) < 3 {
				t.Fatalf("others are gone: %v", list)
			}
			if len(list) == 3 {
				break
			}
		}
		if took := time.Since(began); took > timeout+slack || took < timeout/2 {
			t.Fatalf("gone after %s", took)
		}
		time.Sleep(time.Minute)
		if len(lists) != 0 {
			t.Fatalf("one more change: %v", <-lists)
		}
	})
}
