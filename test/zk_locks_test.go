package test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
	"github.com/coordd/coord/wire"
)

// curatorLock is Curator's mutex by the letter: names, order, and whom one waits
// for.
type curatorLock struct {
	l    *zkLink
	path string
	id   string // stands for the uuid in the name
	mine string
}

// acquire stands in line, and waits for the one in front alone.
func (m *curatorLock) acquire() error {
	q := zkCreate2(m.path+"/_c_"+m.id+"-lock-", "10.0.0.1", wire.FlagEphemeralSequential)
	r, err := m.l.one(q)
	if err != nil {
		return err
	}
	m.mine = r.Path[len(m.path)+1:]
	for {
		front, err := m.front()
		if err != nil || front == "" {
			return err
		}
		rs, err := m.l.call(zkPatient, zkRead(wire.GetData, m.path+"/"+front, true))
		if err != nil {
			return err
		}
		if rs[0].Err == wire.NoNode {
			continue
		}
		for len(m.l.events) == 0 {
			if _, err := m.l.call(zkPatient, zkPing); err != nil {
				return err
			}
			time.Sleep(2 * time.Millisecond)
		}
		m.l.events = nil
	}
}

// front is the name before ours in Curator's order: by what stands behind "lock-",
// as text. "" is the head of the line.
func (m *curatorLock) front() (string, error) {
	r, err := m.l.one(zkRead(wire.GetChildren, m.path, false))
	if err != nil {
		return "", err
	}
	key := func(name string) string {
		if i := strings.LastIndex(name, "lock-"); i >= 0 {
			return name[i+len("lock-"):]
		}
		return name
	}
	slices.SortFunc(r.Names, func(a, b string) int { return strings.Compare(key(a), key(b)) })
	i := slices.Index(r.Names, m.mine)
	switch {
	case i < 0:
		return "", fmt.Errorf("%s is not in %v", m.mine, r.Names)
	case i == 0:
		return "", nil
	}
	return r.Names[i-1], nil
}

func (m *curatorLock) release() error {
	_, err := m.l.one(zkDelete(m.path+"/"+m.mine, -1))
	return err
}

// alone does what only one may do at a time: it fails where somebody else does it.
func alone(create, remove func() error) error {
	if err := create(); err != nil {
		return fmt.Errorf("not alone: %w", err)
	}
	time.Sleep(3 * time.Millisecond)
	return remove()
}

const (
	sharedLock = "/shared/lock"
	inside     = "/inside"
)

func curatorRounds(host string, id string, rounds int) error {
	l, err := zkLinkTo(host, 10*time.Second, nil)
	if err != nil {
		return err
	}
	m := &curatorLock{l: l, path: sharedLock, id: id}
	for range rounds {
		if err := m.acquire(); err != nil {
			return err
		}
		if err := alone(
			func() error { _, err := l.one(zkCreate(inside, id, wire.FlagEphemeral)); return err },
			func() error { _, err := l.one(zkDelete(inside, -1)); return err },
		); err != nil {
			return err
		}
		if err := m.release(); err != nil {
			return err
		}
	}
	return nil
}

func goRounds(ctx context.Context, c *client.Client, rounds int) error {
	m := lock.New(c, sharedLock, lock.Owner("in Go"))
	for range rounds {
		h, err := m.Acquire(ctx)
		if err != nil {
			return err
		}
		if err := alone(
			func() error { _, err := c.Create(ctx, inside, nil, client.WithEphemeral()); return err },
			func() error { return c.Delete(ctx, inside, client.AnyVersion) },
		); err != nil {
			return err
		}
		if err := h.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startLockers is a cluster with the folder of the lock.
func startLockers(t *testing.T) (*processes, *client.Client) {
	t.Helper()
	p := startProcesses(t, 3, "")
	c := dial(t, p.endpoints())
	setup := zkOpen(t, p.nodes[0].zookeeper())
	setup.must(zkCreate("/shared", "", 0))
	setup.must(zkCreate(sharedLock, "", 0))
	return p, c
}

// TestOneLockForCuratorsNamesAndOurs: two programs of each kind, at all servers.
func TestOneLockForCuratorsNamesAndOurs(t *testing.T) {
	t.Parallel()
	p, c := startLockers(t)
	const rounds = 20
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			if err := curatorRounds(p.nodes[i].zookeeper(), fmt.Sprintf("0000000%d-1111-2222-3333-444444444444", i), rounds); err != nil {
				t.Errorf("by Curator's rules: %v", err)
			}
		})
		other := dial(t, p.endpoints())
		wg.Go(func() {
			if err := goRounds(t.Context(), other, rounds); err != nil {
				t.Errorf("by ours: %v", err)
			}
		})
	}
	wg.Wait()
	info, err := lock.New(c, sharedLock).Inspect(t.Context())
	if err != nil || len(info.Holders)+len(info.Waiters) != 0 {
		t.Errorf("left in line: %+v, %v", info, err)
	}
}

// TestOneLockForKazooAndOurs: kazoo waits for others where it is told how they name
// themselves; we wait for it in any case.
func TestOneLockForKazooAndOurs(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	py, script := python(t), absolute(t, "clients/kazoo_lock.py")
	p, c := startLockers(t)
	const rounds = 20
	var suites []*suite
	for range 2 {
		suites = append(suites, startSuite(t, time.Minute, py, script, p.zkHosts(), sharedLock, inside, fmt.Sprint(rounds), "-lock-"))
	}
	if err := goRounds(t.Context(), c, rounds); err != nil {
		t.Error(err)
	}
	for _, s := range suites {
		s.wait(rounds)
	}
}

// TestLockThatKazooDoesNotShareIsWarnedOf: kazoo passes by whom it cannot see, and
// the operator is told so.
func TestLockThatKazooDoesNotShareIsWarnedOf(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	py, script := python(t), absolute(t, "clients/kazoo_lock.py")
	p, c := startLockers(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	show := func() string {
		out, err := exec.CommandContext(ctx, program(t, "coordctl"), "-e", p.target(), "locks", "show", sharedLock).CombinedOutput()
		if err != nil {
			t.Fatalf("coordctl locks show: %v\n%s", err, out)
		}
		return string(out)
	}
	m := lock.New(c, sharedLock, lock.Owner("in Go"))
	h, err := m.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if out := show(); strings.Contains(out, "WARN") {
		t.Errorf("a warning for ours alone:\n%s", out)
	}
	kazoo := exec.CommandContext(ctx, py, script, p.zkHosts(), sharedLock, inside, "0")
	in, err := kazoo.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said lockedText
	kazoo.Stdout, kazoo.Stderr = &said, &said
	if err := kazoo.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = kazoo.Wait() }()
	poll(t, 30*time.Second, "kazoo has the lock beside us", func() error {
		if !strings.Contains(said.String(), "ok locked") {
			return errors.New(said.String())
		}
		return nil
	})
	out := show()
	for _, want := range []string{"WARN", "extra_lock_patterns", "in Go"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if err := h.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := m.TryAcquire(ctx); !errors.Is(err, lock.ErrBusy) {
		t.Errorf("we do not wait for kazoo: %v", err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := m.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Release(ctx); err != nil {
		t.Error(err)
	}
	if out := show(); strings.Contains(out, "WARN") {
		t.Errorf("a warning with kazoo gone:\n%s", out)
	}
}
