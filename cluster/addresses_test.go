package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const movedID = serverID("n3~00000000000000aa")

func wantAddress(t *testing.T, a *addresses, want string) {
	t.Helper()
	if got, err := a.resolve(movedID); got != want || (err == nil) != (want != "") {
		t.Errorf("n3 is at %q (%v), want %q", got, err, want)
	}
}

func TestAddressThatWorksIsTriedFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), addressFile)
	old := []Peer{{"n3", "old:1"}}
	a := newAddresses(old, path)
	wantAddress(t, a, "old:1")
	if err := a.learn(movedID, "new:1"); err != nil {
		t.Fatal(err)
	}
	wantAddress(t, a, "new:1")
	refused := errors.New("refused")
	a.tried(movedID, "new:1", refused)
	wantAddress(t, a, "old:1")
	a.tried(movedID, "old:1", refused)
	wantAddress(t, a, "new:1")
	a.tried(movedID, "new:1", nil)
	wantAddress(t, a, "new:1")
	a.tried(movedID, "new:1", refused)
	a.tried(movedID, "old:1", nil)
	wantAddress(t, a, "old:1")
	if err := a.learn(movedID, "newer:1"); err != nil { // what it says itself is news
		t.Fatal(err)
	}
	wantAddress(t, a, "newer:1")

	// The next start knows, unless the operator has changed the list meanwhile.
	b := newAddresses(old, path)
	if err := b.load(); err != nil {
		t.Fatal(err)
	}
	wantAddress(t, b, "newer:1")
	c := newAddresses([]Peer{{"n3", "listed:1"}}, path)
	if err := c.load(); err != nil {
		t.Fatal(err)
	}
	wantAddress(t, c, "listed:1")
	c.tried(movedID, "listed:1", refused)
	wantAddress(t, c, "newer:1")
	d := newAddresses(nil, path)
	if err := d.load(); err != nil {
		t.Fatal(err)
	}
	wantAddress(t, d, "newer:1")
	if err := d.forget(func(serverID) bool { return false }); err != nil {
		t.Fatal(err)
	}
	wantAddress(t, d, "")
}

func TestAddressesAreBoundedAndSurviveDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), addressFile)
	a := newAddresses(nil, path)
	for i := range 3 * maxLearned {
		if err := a.learn(serverID(fmt.Sprintf("n%d~00000000000000aa", i)), "h:1"); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.learned) > maxLearned {
		t.Errorf("%d addresses are kept", len(a.learned))
	}
	if err := os.WriteFile(path, []byte(`{"n3~00000000000000aa":`), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newAddresses(nil, path)
	if err := b.load(); err == nil || len(b.learned) != 0 {
		t.Errorf("a torn file: %v", err)
	}
	if err := b.learn(movedID, "h:2"); err != nil {
		t.Fatal(err)
	}
	if err := newAddresses(nil, path).load(); err != nil {
		t.Errorf("after a new address: %v", err)
	}
}

// move gives a server another address in its own file; those of the others are
// as they were, unless all is set.
func (w *world) move(name, address string, all bool) {
	old := w.hosts[name].peer.Address
	w.hosts[name].peer.Address = address
	change := func(peers []Peer) []Peer {
		peers = slices.Clone(peers)
		for i := range peers {
			if peers[i].Name == name {
				peers[i].Address = address
			}
		}
		return peers
	}
	tune := w.tune
	w.tune = func(c *Config) {
		if tune != nil {
			tune(c)
		}
		if all || c.Name == name {
			c.Peers = change(c.Peers)
		}
	}
	w.net.refuse(old, old) // nobody is there any more
}

// rqlite#818, #1293: a server that was restarted with another address could not
// come back.
func TestServerThatMovedIsFoundThoughTheListsOfTheOthersAreOld(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		w.shutdown("n3")
		w.move("n3", "elsewhere:7421", false)
		w.start("n3")
		w.awaitFormed()
		// Over restarts of the others, one by one, and at its vote being needed.
		for _, name := range []string{"n1", "n2"} {
			w.shutdown(name)
			w.start(name)
			w.awaitFormed()
		}
		w.kill("n1")
		w.awaitLeader()
		if _, err := w.create("n3", "/a"); err != nil {
			t.Error(err)
		}
		w.start("n1")
		w.awaitFormed()
		if m := w.memberAt("n1", "n3"); m.PeerAddress != "elsewhere:7421" {
			t.Errorf("%+v", m)
		}
		w.kill("n2") // whatever leads now needs n3 and n1 to find one another
		w.awaitLeader()
		if _, err := w.create("n1", "/b"); err != nil {
			t.Error(err)
		}
	})
}

func TestServersMoveOneAfterTheOther(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		for _, name := range []string{"n2", "n1", "n3"} {
			w.shutdown(name)
			w.move(name, name+"-new:7421", false)
			w.start(name)
			w.awaitFormed()
			if _, err := w.create(name, "/"+name); err != nil {
				t.Fatal(err)
			}
		}
		// All at once, each with its own file only: what they have said to one another
		// is kept.
		w.shutdown("n1", "n2", "n3")
		w.start()
		w.awaitFormed()
	})
}

func TestAllServersMoveAtOnceWithNewLists(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		w.shutdown("n1", "n2", "n3")
		for _, name := range []string{"n1", "n2", "n3"} {
			w.move(name, name+"-new:7421", true)
		}
		w.start()
		start := time.Now()
		w.awaitFormed()
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if _, err := w.create("n2", "/a"); err != nil {
			t.Error(err)
		}
	})
}
