package test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/wire"
)

// zkRegisters is registers for clients that are not always told the outcome: a
// write whose answer was lost has happened at some time after its call, or never,
// which is the same as after everything else. A refused write does not say which
// version it found.
var zkRegisters = porcupine.Model{
	Partition: registers.Partition,
	Init:      registers.Init,
	Step: func(state, input, output any) (bool, any) {
		st, in := state.(registerState), input.(registerInput)
		if out, known := output.(registerOutput); known {
			return registers.Step(st, in, out)
		}
		if in.op == "cas" && in.version != st.version {
			return true, st
		}
		return true, registerState{in.value, st.version + 1}
	},
	DescribeOperation: func(input, output any) string {
		if out, known := output.(registerOutput); known {
			return registers.DescribeOperation(input, out)
		}
		return fmt.Sprintf("%+v -> ?", input)
	},
}

// zkWorker reads and writes registers over the ZooKeeper port. Its reads follow a
// sync in the same packet, so they are of what was committed when it began.
type zkWorker struct {
	id    int
	hosts []string
	at    int
	l     *zkLink
	rnd   *rand.Rand
	h     *history
	// seen is the latest version of each register that this client was shown. Plain
	// reads may be old, but never older than that.
	seen map[string]int64
}

func (w *zkWorker) run(keys int, stop <-chan struct{}) error {
	version := int64(0)
	for n := 0; !isDone(stop); n++ {
		in := registerInput{key: fmt.Sprintf("/r%d", w.rnd.IntN(keys)), value: fmt.Sprintf("%d-%d", w.id, n), version: version}
		in.op = []string{"get", "get", "set", "cas"}[w.rnd.IntN(4)]
		from := time.Since(w.h.start)
		out, err := w.call(in)
		switch {
		case err == nil:
			w.add(in, int64(from), out, int64(time.Since(w.h.start)))
			if !out.refused {
				version = out.version
				w.seen[in.key] = max(w.seen[in.key], version)
			}
			err = w.plain(in.key)
		case in.op != "get" && !errors.Is(err, errWrong):
			w.add(in, int64(from), nil, math.MaxInt64)
		}
		if errors.Is(err, errWrong) {
			return err
		}
		if err != nil {
			if err := w.move(); err != nil {
				return err
			}
		}
		time.Sleep(time.Duration(w.rnd.IntN(2000)) * time.Microsecond)
	}
	return nil
}

func (w *zkWorker) add(in registerInput, from int64, out any, to int64) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.h.ops = append(w.h.ops, porcupine.Operation{ClientId: w.id, Input: in, Call: from, Output: out, Return: to})
}

// errWrong marks answers that no failure explains.
var errWrong = errors.New("wrong answer")

func (w *zkWorker) call(in registerInput) (registerOutput, error) {
	if in.op == "get" {
		rs, err := w.l.call(zkPatient, zkSyncRoot, zkRead(wire.GetData, in.key, false))
		if err != nil {
			return registerOutput{}, err
		}
		if rs[0].Err != wire.OK || rs[1].Err != wire.OK {
			return registerOutput{}, fmt.Errorf("%w: sync %w, get %w", errWrong, rs[0].Err, rs[1].Err)
		}
		return registerOutput{value: string(rs[1].Data), version: rs[1].Stat.Version}, nil
	}
	version := int32(-1)
	if in.op == "cas" {
		version = int32(in.version)
	}
	rs, err := w.l.call(zkPatient, zkSet(in.key, in.value, version))
	switch {
	case err != nil:
		return registerOutput{}, err
	case rs[0].Err == wire.BadVersion && in.op == "cas":
		return registerOutput{refused: true}, nil
	case rs[0].Err != wire.OK:
		return registerOutput{}, fmt.Errorf("%w: set %w", errWrong, rs[0].Err)
	}
	return registerOutput{version: rs[0].Stat.Version}, nil
}

// plain reads without a sync.
func (w *zkWorker) plain(key string) error {
	rs, err := w.l.call(zkPatient, zkRead(wire.GetData, key, false))
	if err != nil {
		return err
	}
	if v := rs[0].Stat.Version; rs[0].Err != wire.OK || v < w.seen[key] {
		return fmt.Errorf("%w: a read of %s goes back from version %d to %d (%w)", errWrong, key, w.seen[key], v, rs[0].Err)
	}
	w.seen[key] = rs[0].Stat.Version
	return nil
}

func (w *zkWorker) move() error {
	w.at++
	w.l.net.Close()
	next, err := zkLinkAny(w.hosts, w.at, 10*time.Second, w.l)
	if err != nil {
		return err
	}
	w.l = next
	return nil
}

// TestHistoriesOfZooKeepersClientsAreLinearizable: sets, and reads behind a sync,
// could have happened one after the other, while leaders and other servers are
// killed; and no client is ever shown less than it has seen, wherever it goes.
func TestHistoriesOfZooKeepersClientsAreLinearizable(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const keys, clients, kills = 4, 6, 5
	s := seed.New(t)
	c := startProcesses(t, 3, "")
	setup := zkOpen(t, c.nodes[0].zookeeper())
	for k := range keys {
		setup.must(zkCreate(fmt.Sprintf("/r%d", k), "", 0))
	}
	h := &history{start: time.Now()}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range clients {
		w := &zkWorker{id: i, hosts: c.zkAddresses(), at: i, h: h, rnd: rand.New(rand.NewPCG(s, uint64(i))), seen: map[string]int64{}}
		var err error
		if w.l, err = zkLinkTo(w.hosts[i%3], 10*time.Second, nil); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := w.run(keys, stop); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	for i := range kills {
		time.Sleep(400 * time.Millisecond)
		victim := c.nodes[i%3]
		if i%2 == 0 {
			victim = c.leader()
		}
		victim.kill()
		time.Sleep(400 * time.Millisecond)
		victim.start()
		c.waitReady(30 * time.Second)
	}
	close(stop)
	wg.Wait()
	h.checkBy(t, zkRegisters)
	c.sameDigests()
}

// A checker that lets unknown outcomes pass must not let everything pass.
func TestTheCheckerOfUnknownOutcomesFindsAStaleRead(t *testing.T) {
	op := func(client int, from, to int64, in registerInput, out any) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: in, Call: from, Output: out, Return: to}
	}
	lost := op(0, 0, math.MaxInt64, registerInput{key: "/r", op: "set", value: "a"}, nil)
	read := func(from, to, version int64, value string) porcupine.Operation {
		return op(1, from, to, registerInput{key: "/r", op: "get"}, registerOutput{value: value, version: version})
	}
	for what, right := range map[string][]porcupine.Operation{
		"applied late": {lost, read(5, 6, 0, ""), read(20, 30, 1, "a")},
		"never":        {lost, read(20, 30, 0, "")},
	} {
		if !porcupine.CheckOperations(zkRegisters, right) {
			t.Errorf("%s: a right history was refused", what)
		}
	}
	for what, wrong := range map[string][]porcupine.Operation{
		"seen and gone": {lost, read(5, 6, 1, "a"), read(20, 30, 0, "")},
		"twice":         {lost, read(5, 6, 2, "a")},
		"before it":     {op(0, 10, math.MaxInt64, registerInput{key: "/r", op: "set", value: "a"}, nil), read(5, 6, 1, "a")},
	} {
		if porcupine.CheckOperations(zkRegisters, wrong) {
			t.Errorf("%s: a wrong history was not found", what)
		}
	}
}

// TestProtocolUnderLoad: what the port is asked is answered the same while clients
// of the other port write.
func TestProtocolUnderLoad(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c := zkCluster(t)
	w := startCounters(t, c.endpoints(), 3)
	t.Run("protocol", func(t *testing.T) {
		for name, f := range zkProtocol {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f(t, c.follower().zookeeper(), c.leader().zookeeper())
			})
		}
	})
	w.waitProgress(maxPause)
	w.stop()
	c.sameDigests()
}
