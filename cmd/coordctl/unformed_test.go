package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/server"
)

// freePort is an address to listen on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// unformed runs a server that waits for `cluster init`, and for a second one that
// is not there. It returns its address.
func unformed(t *testing.T) string {
	t.Helper()
	address, peer, log := freePort(t), freePort(t), slog.New(slog.DiscardHandler)
	s, err := server.New(server.Config{
		Cluster: cluster.Config{
			Name: "n1", ClusterName: "local", Bootstrap: cluster.BootstrapManual, DataDir: t.TempDir(), Listen: peer, Logger: log,
			Peers: []cluster.Peer{{Name: "n1", Address: peer}, {Name: "n2", Address: closedPort(t)}},
		},
		GRPC: address, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the server answers", func() bool { return ctl(t, "", "-e", address, "status").code != exitUnreachable })
	return address
}

// A cluster that is not formed says so, at once: waiting does not help.
func TestUnformedClusterSaysSoAtOnce(t *testing.T) {
	t.Parallel()
	address := unformed(t)
	for _, line := range []string{"get /x", "set /x y", "create -e /x", "watch /x --for 1m", "sync"} {
		began := time.Now()
		r := ctl(t, "", append([]string{"-e", address, "--timeout", "1m"}, strings.Fields(line)...)...)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %s", line, took)
		}
		r.want(t, exitUnreachable, "", "~coordctl: the cluster is not formed yet: waiting for ")
	}
	ctl(t, "", "-e", address, "set", "/x", "y", "--json").want(t, exitUnreachable, "", `~"outcome":"notDone"`)
	var st clusterStatus
	r := ctl(t, "", "-e", address, "status", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &st); err != nil || r.code != exitUnhealthy || len(st.Servers) != 2 {
		t.Fatalf("exit code %d, %v\n%s", r.code, err, r.stdout)
	}
	if n1, n2 := st.Servers[0], st.Servers[1]; n1.Role != "waiting" || n1.State != "waiting" || n2.State != "unknown" {
		t.Errorf("n1 is %s (%s), n2 %s", n1.State, n1.Role, n2.State)
	}
	if r := ctl(t, "", "-e", address, "status"); strings.Contains(r.stdout, "DOWN") {
		t.Errorf("status of a server that answers:\n%s", r.stdout)
	}
}
