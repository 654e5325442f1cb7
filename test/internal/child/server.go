package child

import (
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
)

// Ready returns nil if a server's status says that it serves, and that as many
// servers vote.
func Ready(st *coordpb.StatusReply, voters int) error {
	switch {
	case !st.GetReady() || !st.GetMembersFromLeader():
		return fmt.Errorf("not ready: %s %v", st.GetWaiting(), st.GetChecks())
	case len(st.GetMembers()) != voters:
		return fmt.Errorf("%d members", len(st.GetMembers()))
	}
	for _, m := range st.GetMembers() {
		if m.GetRole() != coordpb.Member_ROLE_LEADER && m.GetRole() != coordpb.Member_ROLE_VOTER {
			return fmt.Errorf("%s is %s", m.GetName(), m.GetRole())
		}
	}
	return nil
}

// Poll calls f until it returns nil, and fails the test with its last error once
// the time is over.
func Poll(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
