package test

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/wire"
)

// TestHundredThousandChildren can be listed and deleted through either port.
func TestHundredThousandChildren(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const n, step = 100_000, 2000
	p := startProcesses(t, 3, "")
	c := zkOpen(t, p.follower().zookeeper())
	dir := c.dir()
	multi := func(op func(i int) wire.Op) {
		t.Helper()
		for i := 0; i < n; i += step {
			ops := make([]wire.Op, step)
			for k := range ops {
				ops[k] = op(i + k)
			}
			if r := c.must(zkMulti(ops...)); len(r.Results) != step || r.Results[0].Err != wire.OK {
				t.Fatalf("at %d: %+v", i, r.Results[0])
			}
		}
	}
	fill := func() { multi(func(i int) wire.Op { return zkCreate(fmt.Sprintf("%s/child-%06d", dir, i), "", 0).Op }) }
	fill()
	r := c.must(zkRead(wire.GetChildren2, dir, false))
	if len(r.Names) != n || r.Stat.NumChildren != n || len(r.record) <= wire.MaxFrameBytes {
		t.Errorf("%d children in %d bytes, %d by the Stat", len(r.Names), len(r.record), r.Stat.NumChildren)
	}
	multi(func(i int) wire.Op { return zkDelete(dir+"/"+r.Names[i], -1).Op })
	if r := c.must(zkRead(wire.Exists, dir, false)); r.Stat.NumChildren != 0 {
		t.Errorf("%d are left", r.Stat.NumChildren)
	}
	fill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g, err := client.Dial(ctx, p.target())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if names, err := g.Children(ctx, dir); err != nil || len(names) != n {
		t.Errorf("through gRPC: %d children, %v", len(names), err)
	}
	if out, err := exec.CommandContext(ctx, program(t, "coordctl"), "-e", p.target(), "deleteall", "--yes", dir).CombinedOutput(); err != nil {
		t.Errorf("deleteall: %v\n%s", err, out)
	}
	if _, ok, err := g.Exists(ctx, dir); ok || err != nil {
		t.Errorf("afterwards: %v, %v", ok, err)
	}
}
