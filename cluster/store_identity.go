package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// errDiskNotWhole is returned when a part of the data directory is missing,
// belongs to another server, or was put back from a copy.
var errDiskNotWhole = errors.New("this disk is not whole: wipe it all, it will rejoin as new")

// errOtherServer is returned for the directory of a server of another name.
var errOtherServer = errors.New("the data directory belongs to another server")

// identityKey is where the identity stands in the stable store and in the log's
// own store.
var identityKey = []byte("coord/identity")

// identityPlace is one of the three places that hold Raft state, each with its
// own copy of the identity: if one is lost or replaced, it shows.
type identityPlace struct {
	path string // for messages
	get  func() ([]byte, error)
	set  func([]byte) error
}

// identityPlaces are listed in the order in which they are written. A crash
// between two writes leaves the first ones new and the rest old; any other
// mixture is a disk that is not whole.
func identityPlaces(dir string, stable raft.StableStore, log logBackend, logPath string) []identityPlace {
	file := filepath.Join(dir, snapshotDir, identityFile)
	return []identityPlace{
		{
			path: filepath.Join(dir, stableFile),
			get:  func() ([]byte, error) { return getStable(stable, identityKey) },
			set:  func(b []byte) error { return stable.Set(identityKey, b) },
		},
		{
			path: logPath,
			get:  func() ([]byte, error) { return log.Get(identityKey) },
			set:  func(b []byte) error { return log.Set(identityKey, b) },
		},
		{
			path: file,
			get: func() ([]byte, error) {
				b, err := os.ReadFile(file)
				if errors.Is(err, fs.ErrNotExist) {
					return nil, nil
				}
				return b, err
			},
			set: func(b []byte) error { return writeFileDurably(file, b) },
		},
	}
}

func getStable(s raft.StableStore, key []byte) ([]byte, error) {
	v, err := s.Get(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, nil
	}
	return v, err
}

// readIdentities returns the copy of each place, nil where there is none.
func readIdentities(places []identityPlace) ([]*identity, error) {
	found := make([]*identity, len(places))
	for i, p := range places {
		b, err := p.get()
		if err != nil {
			return nil, fmt.Errorf("read the identity in %s: %w", p.path, err)
		}
		if b == nil {
			continue
		}
		id, err := decodeIdentity(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %w", p.path, err, errDiskNotWhole)
		}
		found[i] = &id
	}
	return found, nil
}

// settleIdentity compares the three copies and returns the identity, or an
// error that names the place that does not fit. A first start, or the setting of
// the cluster id, that was cut short by a crash is finished. unborn says that
// the directory has no Raft state at all.
func settleIdentity(places []identityPlace, name string, unborn bool) (identity, error) {
	found, err := readIdentities(places)
	if err != nil {
		return identity{}, err
	}
	want := found[0]
	if want == nil {
		if err := checkNothingFound(places, found, unborn); err != nil {
			return identity{}, err
		}
		server, err := newServerID(name)
		if err != nil {
			return identity{}, err
		}
		want = &identity{Format: identityFormat, Server: server}
	}
	if err := checkSame(places, found, *want, unborn); err != nil {
		return identity{}, err
	}
	if got := want.Server.name(); got != name {
		return identity{}, fmt.Errorf("%w: %s belongs to server %q, and this server is named %q", errOtherServer, places[0].path, got, name)
	}
	return *want, writeIdentity(places, found, *want)
}

// checkNothingFound is for a stable store without an identity: then nothing else
// may be there either, as it is written first.
func checkNothingFound(places []identityPlace, found []*identity, unborn bool) error {
	for i, id := range found {
		if id != nil {
			return fmt.Errorf("%s has no identity, but %s says %v: %w", places[0].path, places[i].path, id, errDiskNotWhole)
		}
	}
	if !unborn {
		return fmt.Errorf("%s has no identity, but there is Raft state: %w", places[0].path, errDiskNotWhole)
	}
	return nil
}

// checkSame accepts found if it is what a crash may leave of writing want in
// order over an older identity of the same server: first copies of want, then
// copies of the older one. A copy may be missing only if there is no Raft
// state, that is, if the first start was cut short.
func checkSame(places []identityPlace, found []*identity, want identity, unborn bool) error {
	var older *identity
	for i, id := range found {
		p := places[i].path
		switch {
		case id == nil && (!unborn || anyFound(found[i:])):
			return fmt.Errorf("%s has no identity, expected %v: %w", p, want, errDiskNotWhole)
		case id == nil:
		case id.Server != want.Server:
			return fmt.Errorf("%s belongs to %v, expected %v: %w", p, id, want, errDiskNotWhole)
		case older == nil && *id != want:
			older = id
		case older != nil && *id != *older:
			return fmt.Errorf("%s says %v, expected %v: %w", p, id, *older, errDiskNotWhole)
		}
	}
	return nil
}

func anyFound(found []*identity) bool {
	for _, id := range found {
		if id != nil {
			return true
		}
	}
	return false
}

// writeIdentity brings every place that does not say want up to it, in order.
func writeIdentity(places []identityPlace, found []*identity, want identity) error {
	for i, p := range places {
		if found[i] != nil && *found[i] == want {
			continue
		}
		if err := p.set(want.encode()); err != nil {
			return fmt.Errorf("write the identity to %s: %w", p.path, err)
		}
	}
	return nil
}
