package sim

import (
	"strings"
	"testing"

	"github.com/coordd/coord/internal/check"
)

// TestLeaderChangesBreakNoConnectionOfZooKeepersClients: a leader that changes is a
// delay to who is connected to another server. Connections stay, and each request is
// answered once and in its turn.
func TestLeaderChangesBreakNoConnectionOfZooKeepersClients(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole cluster, for some seconds")
	}
	c := Config{Clients: 6, Keep: *keepFlag}
	for i := range 12 {
		at := c.withDefaults().paces(float64(10 + 25*i))
		if i%2 == 0 {
			c.Plan = append(c.Plan, Step{At: at, Lasts: c.withDefaults().paces(5), Kind: Kill, A: Leader})
		} else {
			c.Plan = append(c.Plan, Step{At: at, Kind: Transfer, A: Leader})
		}
	}
	c.Length = c.withDefaults().paces(310)
	out := Must(t, c)
	if out.Happened[Kill] < 6 || out.Happened[Transfer] < 3 {
		t.Errorf("it has shown little: %v", out.Happened)
	}
	answered, fired := 0, 0
	for _, r := range out.History.Records() {
		rider := strings.HasPrefix(r.Client, "c2-") || strings.HasPrefix(r.Client, "c5-")
		switch {
		case rider && r.Outcome == check.Done:
			answered++
		case r.Kind == check.Fired:
			fired++
		}
	}
	if answered < 100 || fired < 10 {
		t.Errorf("%d answers and %d watches that have fired show little", answered, fired)
	}
	t.Logf("%d answers, %d watches have fired", answered, fired)
}
