package test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/seed"
)

// registerInput is one call on a znode: a read, a set, or a set at a version.
type registerInput struct {
	key     string
	op      string // get, set, cas
	value   string
	version int64 // cas
}

type registerOutput struct {
	value   string
	version int64
	refused bool // cas: the version did not match
}

type registerState struct {
	value   string
	version int64
}

// registers is the sequential specification of independent znodes that exist.
var registers = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		var order []string
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(registerInput).key
			if byKey[key] == nil {
				order = append(order, key)
			}
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, key := range order {
			parts = append(parts, byKey[key])
		}
		return parts
	},
	Init: func() any { return registerState{} },
	Step: func(state, input, output any) (bool, any) {
		st, in, out := state.(registerState), input.(registerInput), output.(registerOutput)
		switch {
		case in.op == "get":
			return out.value == st.value && out.version == st.version, st
		case in.op == "cas" && in.version != st.version:
			return out.refused, st
		case out.refused:
			return false, st
		default:
			next := registerState{in.value, st.version + 1}
			return out.version == next.version, next
		}
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(registerInput), output.(registerOutput)
		return fmt.Sprintf("%s %s %q@%d -> %q@%d %v", in.op, in.key, in.value, in.version, out.value, out.version, out.refused)
	},
}

// history collects what clients did and when.
type history struct {
	mu    sync.Mutex
	start time.Time
	ops   []porcupine.Operation
}

// TestHistoriesWithKillsAreLinearizable runs reads and writes from all servers
// while the leader is killed, and checks that they could have happened one
// after the other.
func TestHistoriesWithKillsAreLinearizable(t *testing.T) {
	skipIfShort(t)
	s := seed.New(t)
	c := startProcesses(t, 3, "")
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	const keys, clients, kills = 4, 6, 5
	setup := dial(t, c.endpoints())
	for k := range keys {
		if _, err := setup.Create(ctx, fmt.Sprintf("/r%d", k), []byte{}); err != nil {
			t.Fatal(err)
		}
	}
	h := &history{start: time.Now()}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range clients {
		cl := dial(t, c.endpoints()[i%3:i%3+1]) // its own server only: no detour around a stale one
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(s, uint64(i)))
			if err := h.run(ctx, cl, i, rnd, keys, stop); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	for range kills {
		time.Sleep(700 * time.Millisecond)
		lead := c.leader()
		lead.kill()
		time.Sleep(700 * time.Millisecond)
		lead.start()
		c.waitReady(30 * time.Second)
	}
	close(stop)
	wg.Wait()
	h.check(t)
	c.sameDigests()
}

func (h *history) run(ctx context.Context, c *client.Client, id int, rnd *rand.Rand, keys int, stop <-chan struct{}) error {
	version := int64(0) // the last one seen, for cas
	for n := 0; ; n++ {
		select {
		case <-stop:
			return nil
		default:
		}
		in := registerInput{key: fmt.Sprintf("/r%d", rnd.IntN(keys)), value: fmt.Sprintf("%d-%d", id, n), version: version}
		in.op = []string{"get", "get", "set", "cas"}[rnd.IntN(4)]
		from := time.Since(h.start)
		out, err := call(ctx, c, in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", in.op, in.key, err)
		}
		h.mu.Lock()
		h.ops = append(h.ops, porcupine.Operation{ClientId: id, Input: in, Call: int64(from), Output: out, Return: int64(time.Since(h.start))})
		h.mu.Unlock()
		version = out.version
		time.Sleep(time.Duration(rnd.IntN(2000)) * time.Microsecond)
	}
}

func call(ctx context.Context, c *client.Client, in registerInput) (registerOutput, error) {
	if in.op == "get" {
		n, err := c.Get(ctx, in.key)
		return registerOutput{value: string(n.Data), version: n.Stat.Version}, err
	}
	want := in.version
	if in.op == "set" {
		want = client.AnyVersion
	}
	st, err := c.Set(ctx, in.key, []byte(in.value), want)
	if errors.Is(err, client.ErrBadVersion) && in.op == "cas" {
		var e *client.Error
		errors.As(err, &e)
		return registerOutput{version: e.Have, refused: true}, nil
	}
	return registerOutput{version: st.Version}, err
}

func (h *history) check(t *testing.T) {
	t.Helper()
	h.checkBy(t, registers)
}

// checkBy fails the test if the history cannot be put in an order that the model
// allows, and draws it.
func (h *history) checkBy(t *testing.T, model porcupine.Model) {
	t.Helper()
	t.Logf("%d operations", len(h.ops))
	if len(h.ops) < 1000 {
		t.Errorf("only %d operations: the history shows little", len(h.ops))
	}
	result, info := porcupine.CheckOperationsVerbose(model, h.ops, time.Minute)
	if result == porcupine.Ok {
		return
	}
	path := filepath.Join(os.TempDir(), "coord-history.html")
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		t.Log(err)
	}
	t.Errorf("the history is %s; it is drawn in %s", result, path)
}

// A checker that cannot fail proves nothing.
func TestTheCheckerFindsAStaleRead(t *testing.T) {
	op := func(client int, from, to int64, in registerInput, out registerOutput) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: in, Call: from, Output: out, Return: to}
	}
	set := op(0, 0, 10, registerInput{key: "/r", op: "set", value: "a"}, registerOutput{version: 1})
	fresh := op(1, 20, 30, registerInput{key: "/r", op: "get"}, registerOutput{value: "a", version: 1})
	stale := op(1, 20, 30, registerInput{key: "/r", op: "get"}, registerOutput{})
	if !porcupine.CheckOperations(registers, []porcupine.Operation{set, fresh}) {
		t.Error("a right history was refused")
	}
	if porcupine.CheckOperations(registers, []porcupine.Operation{set, stale}) {
		t.Error("a stale read was not found")
	}
	twice := op(0, 40, 50, registerInput{key: "/r", op: "set", value: "b"}, registerOutput{version: 3})
	if porcupine.CheckOperations(registers, []porcupine.Operation{set, twice}) {
		t.Error("a write applied twice was not found")
	}
}
