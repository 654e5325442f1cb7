package fsm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// backup is the bytes of a backup of the rig's state.
func (r *rig) backup() []byte {
	r.t.Helper()
	var b bytes.Buffer
	if err := r.m.Snapshot().ForBackup().Encode(&b); err != nil {
		r.t.Fatal(err)
	}
	return b.Bytes()
}

func beginOf(id string, data []byte) *Command {
	return &Command{Kind: CmdRestoreBegin, Begin: &RestoreBegin{
		ID: id, Nonce: restoreNonce(id), Size: int64(len(data)), SHA256: sha256.Sum256(data),
	}}
}

func restoreNonce(id string) (n session.Nonce) {
	copy(n[:], id)
	return n
}

func chunkOf(id string, data []byte, from, to int) *Command {
	return &Command{Kind: CmdRestoreChunk, Chunk: &RestoreChunk{Nonce: restoreNonce(id), Offset: int64(from), Data: data[from:to]}}
}

func commitOf(id string) *Command {
	return &Command{Kind: CmdRestoreCommit, Commit: &RestoreCommit{Nonce: restoreNonce(id)}}
}

// bring begins a restore and brings all of it.
func (r *rig) bring(id string, data []byte) {
	r.t.Helper()
	r.done(r.onServer(beginOf(id, data)))
	for at := 0; at < len(data); {
		to := min(at+100, len(data))
		r.done(r.onServer(chunkOf(id, data, at, to)))
		at = to
	}
}

func (r *rig) restore(id string, data []byte) *Result {
	r.t.Helper()
	r.bring(id, data)
	return r.done(r.onServer(commitOf(id)))
}

// backedUp is a rig with a backup behind which the state has gone on: a lock is
// held by another one, and the znode of the backup has other data.
func backedUp(t *testing.T) (r *rig, data []byte, holder, other *client) {
	r = newRig(t)
	holder = r.open(1)
	r.done(holder.write(create("/a")))
	r.done(holder.write(create("/lock")))
	r.done(holder.write(ephemeral("/lock/1")))
	data = r.backup()
	other = r.open(2)
	r.done(holder.write(del("/lock/1")))
	r.done(other.write(ephemeral("/lock/2")))
	r.done(other.write(set("/a", "newer")))
	r.done(other.write(create("/later")))
	return r, data, holder, other
}

func TestRestorePutsTheTreeBackAndEndsEverySession(t *testing.T) {
	r, data, holder, other := backedUp(t)
	last := r.m.Zxid()
	r.hook.reset()
	res := r.restore("one", data)

	if got := r.m.Zxid(); got != res.Zxid || got != zxid.Make(last.Epoch()+1, 1) {
		t.Errorf("the restore is transaction %s, the state stands at %s, the last one before was %s", res.Zxid, got, last)
	}
	for path, want := range map[string]bool{"/a": true, "/lock": true, "/lock/1": false, "/lock/2": false, "/later": false} {
		if r.exists(path) != want {
			t.Errorf("%s: exists %v", path, !want)
		}
	}
	if d, _, _ := r.m.state.Tree.Get("/a", &znode.Caller{}); string(d) != "d" {
		t.Errorf("/a has the data %q", d)
	}
	if n := r.m.state.Sessions.Len(); n != 0 {
		t.Errorf("%d sessions live", n)
	}
	for _, c := range []*client{holder, other} {
		e, ok := r.m.state.Sessions.EndedSession(c.info.ID)
		if !ok || e.Reason != session.Restored || e.Zxid != res.Zxid {
			t.Errorf("session %s ended as %+v, %v", c.info.ID, e, ok)
		}
		r.is(r.one(c.write(create("/no"))), StatusGone, session.ErrExpired)
	}
	if d := r.m.state.LastRestore; d.ID != "one" || d.Zxid != res.Zxid || d.Sessions != 2 || d.Znodes != 6 {
		t.Errorf("remembered as %+v", d)
	}
	order := strings.Join(r.hook.order, ",")
	if !strings.Contains(order, "restored ") || strings.Index(order, "restored ") > strings.Index(order, "applied restore-commit") ||
		strings.Count(order, "ended restored") != 2 {
		t.Errorf("the hook heard: %s", order)
	}
	if err := errors.Join(r.m.state.Tree.Check(), r.m.state.Sessions.Check()); err != nil {
		t.Error(err)
	}
	if s := r.open(3); zxid.ID(s.info.ID) <= res.Zxid {
		t.Errorf("session %s is not behind the restore", s.info.ID)
	}
}

func TestRestoreNeverGoesBackInTokens(t *testing.T) {
	for _, c := range []struct {
		name             string
		min, backup, now uint32
		want             uint32
	}{
		{"the state is ahead", 0, 9, 20, 21},
		{"the backup is ahead", 0, 30, 20, 31},
		{"the clock is ahead", 500, 30, 20, 500},
		{"a token was named that is smaller", 5, 9, 20, 21},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.epoch(c.backup)
			data := r.backup()
			r = newRig(t)
			r.epoch(c.now)
			r.bring("x", data)
			commit := commitOf("x")
			commit.Commit.MinEpoch = c.min
			if res := r.done(r.onServer(commit)); res.Zxid != zxid.Make(c.want, 1) {
				t.Errorf("the restore is transaction %s, not the first of epoch %d", res.Zxid, c.want)
			}
		})
	}
}

func TestEpochThatWouldUseUpAllIDsIsRefused(t *testing.T) {
	r := newRig(t)
	data := r.backup()
	r.bring("x", data)
	commit := commitOf("x")
	commit.Commit.MinEpoch = MaxRestoreEpoch + 1
	before := r.m.Zxid()
	r.refused(r.onServer(commit), znode.ErrBadArguments)
	if r.m.Zxid() != before {
		t.Errorf("the refusal took %s", r.m.Zxid())
	}
}

// A restore that is begun, cut short, or wrong changes nothing that a client
// could see.
func TestRestoreThatFailsChangesNothing(t *testing.T) {
	damaged := func(data []byte) []byte {
		b := bytes.Clone(data)
		b[len(b)/2] ^= 1
		return b
	}
	whole := func(r *rig) []byte {
		var b bytes.Buffer
		if err := r.m.Snapshot().Encode(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for name, f := range map[string]func(r *rig, data []byte){
		"damaged": func(r *rig, data []byte) {
			r.bring("x", damaged(data))
			r.refused(r.onServer(commitOf("x")), znode.ErrBadArguments)
		},
		"other sum": func(r *rig, data []byte) {
			begin := beginOf("x", damaged(data))
			r.done(r.onServer(begin))
			r.done(r.onServer(chunkOf("x", data, 0, len(data))))
			if err := r.m.AwaitRestore(t.Context(), restoreNonce("x")); !errors.Is(err, ErrBadSnapshot) {
				t.Error(err)
			}
			r.refused(r.onServer(commitOf("x")), znode.ErrBadArguments)
		},
		"half of it": func(r *rig, data []byte) {
			r.done(r.onServer(beginOf("x", data)))
			r.done(r.onServer(chunkOf("x", data, 0, len(data)/2)))
			r.refused(r.onServer(commitOf("x")), znode.ErrBadArguments)
		},
		"more than announced": func(r *rig, data []byte) {
			r.done(r.onServer(beginOf("x", data[:len(data)-1])))
			r.refused(r.onServer(chunkOf("x", data, 0, len(data))), znode.ErrBadArguments)
			r.done(r.onServer(chunkOf("x", data, 0, len(data)-1)))
			r.refused(r.onServer(commitOf("x")), znode.ErrBadArguments)
		},
		"a hole": func(r *rig, data []byte) {
			r.done(r.onServer(beginOf("x", data)))
			r.refused(r.onServer(chunkOf("x", data, 1, 2)), znode.ErrBadArguments)
		},
		"another one was begun": func(r *rig, data []byte) {
			r.bring("x", data)
			r.done(r.onServer(beginOf("y", data)))
			r.refused(r.onServer(commitOf("x")), znode.ErrBadArguments)
			r.refused(r.onServer(chunkOf("x", data, 0, 1)), znode.ErrBadArguments)
		},
		"given up": func(r *rig, data []byte) {
			r.bring("x", data)
			c := commitOf("x")
			c.Commit.Abandon = true
			r.done(r.onServer(c))
			r.refused(r.onServer(commitOf("x")), znode.ErrBadArguments)
		},
		"not empty": func(r *rig, data []byte) {
			r.bring("x", data)
			c := commitOf("x")
			c.Commit.IntoEmpty = true
			r.refused(r.onServer(c), znode.ErrNotEmpty)
		},
		"a snapshot of a server": func(r *rig, _ []byte) {
			r.bring("x", whole(r))
			r.refused(r.onServer(commitOf("x")), znode.ErrBadArguments)
		},
		"a snapshot with a backup in it": func(r *rig, data []byte) {
			other := newRig(t)
			other.bring("z", data)
			r.bring("x", whole(other))
			r.refused(r.onServer(commitOf("x")), znode.ErrBadArguments)
		},
		"no size":   func(r *rig, _ []byte) { r.refused(r.onServer(beginOf("x", nil)), znode.ErrBadArguments) },
		"no id":     func(r *rig, data []byte) { r.refused(r.onServer(beginOf("", data)), znode.ErrBadArguments) },
		"never was": func(r *rig, _ []byte) { r.refused(r.onServer(commitOf("x")), znode.ErrBadArguments) },
		"too large": func(r *rig, data []byte) {
			c := beginOf("x", data)
			c.Begin.Size = MaxRestoreBytes + 1
			r.refused(r.onServer(c), ErrTooLarge)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, data, holder, other := backedUp(t)
			tree, last := r.m.state.Tree.Digest(), r.m.Zxid()
			r.hook.ended = nil
			f(r, data)
			if r.m.state.Tree.Digest() != tree || r.m.Zxid() != last || len(r.hook.ended) != 0 {
				t.Error("something was changed")
			}
			r.done(holder.write(create("/goes-on")))
			r.done(other.write(create("/lock/3")))
			r.restore("last", data) // and the next one works
		})
	}
}

func TestBackupOfAHigherFeatureLevelIsRefused(t *testing.T) {
	high := New(Options{FeatureLevel: FeatureLevel + 1})
	r := &rig{t: t, m: high, hook: &recorder{}, term: 1, clock: startClock, boots: map[string]uint64{}}
	r.m.SetHook(r.hook)
	r.epoch(testEpoch)
	r.done(&Command{Kind: CmdFeature, Feature: FeatureLevel + 1, Term: r.term})
	data := r.backup()

	r = newRig(t)
	r.bring("x", data)
	if err := r.m.AwaitRestore(t.Context(), restoreNonce("x")); err != nil {
		t.Fatal(err)
	}
	r.refused(r.onServer(commitOf("x")), ErrUnimplemented)
}

func TestRestoreWithOneIDIsDoneOnce(t *testing.T) {
	r, data, _, _ := backedUp(t)
	first := r.restore("one", data)
	s := r.open(5)
	r.done(s.write(create("/after")))
	again := r.one(r.onServer(beginOf("one", data)))
	r.is(again, StatusRepeat, nil)
	r.refused(r.onServer(commitOf("one")), znode.ErrBadArguments)
	r.reborn()
	r.is(r.one(r.onServer(beginOf("one", data))), StatusRepeat, nil)
	if !r.exists("/after") || r.m.state.LastRestore.Zxid != first.Zxid {
		t.Error("it was done again")
	}
}

// Whether a build that is newer than the cluster could read it must not matter.
func TestBackupOfAFormThatTheLevelDoesNotKnowIsRefusedAlike(t *testing.T) {
	for _, version := range []byte{2, 200} {
		r, data, _, _ := backedUp(t)
		data[len(snapshotMagic)] = version
		r.bring("x", data)
		r.refused(r.onServer(commitOf("x")), ErrUnimplemented)
	}
}

// A server may take its state as a snapshot at any moment of a restore, and must
// come to the same.
func TestSnapshotInTheMiddleOfARestoreGoesOn(t *testing.T) {
	_, data, _, _ := backedUp(t)
	steps := []*Command{beginOf("x", data)}
	for at := 0; at < len(data); at += 64 {
		steps = append(steps, chunkOf("x", data, at, min(at+64, len(data))))
	}
	steps = append(steps, commitOf("x"))
	straight, _, _, _ := backedUp(t)
	for _, c := range steps {
		straight.done(straight.onServer(c))
	}
	want := straight.digest()
	for stop := range steps {
		r, _, _, _ := backedUp(t)
		for i, c := range steps {
			if i == stop {
				before := r.m.Snapshot()
				r.reborn()
				if after := r.snapshot(); len(after) == 0 || before.Digest() != r.digest() {
					t.Fatal("another state")
				}
			}
			r.done(r.onServer(c))
		}
		if r.digest() != want {
			t.Fatalf("a machine restored before step %d has another digest", stop)
		}
	}
}

func TestEveryByteOfARestoreIsInTheDigest(t *testing.T) {
	_, data, _, _ := backedUp(t)
	seen := map[uint64]string{}
	note := func(what string, r *rig) {
		if other, ok := seen[r.digest()]; ok {
			t.Errorf("%s and %s have the same digest", what, other)
		}
		seen[r.digest()] = what
	}
	r := newRig(t)
	note("none", r)
	for _, what := range []string{"begun", "one byte", "two bytes"} {
		switch what {
		case "begun":
			r.done(r.onServer(beginOf("x", data)))
		case "one byte":
			r.done(r.onServer(chunkOf("x", data, 0, 1)))
		default:
			r.done(r.onServer(chunkOf("x", data, 1, 2)))
		}
		note(what, r)
	}
	other := newRig(t)
	other.done(other.onServer(beginOf("x", data)))
	spoiled := append([]byte{data[0] + 1}, data[1:]...)
	other.done(other.onServer(chunkOf("x", spoiled, 0, 1)))
	other.done(other.onServer(chunkOf("x", data, 1, 2)))
	note("another byte", other)
}

func TestRestoreThatStandsStillIsForgotten(t *testing.T) {
	r, data, _, _ := backedUp(t)
	r.bring("x", data)
	r.clock += restoreIdle.Milliseconds()
	r.done(r.open(8).write(create("/b")))
	if r.m.state.restoring == nil {
		t.Fatal("forgotten too early")
	}
	r.clock += 1
	r.entry()
	if r.m.state.restoring != nil {
		t.Fatal("it is still kept")
	}
	r.refused(r.onServer(commitOf("x")), znode.ErrBadArguments)
}

// An image may be written long after it was taken, while the restore goes on.
func TestImageDoesNotSeeLaterBytesOfARestore(t *testing.T) {
	r, data, _, _ := backedUp(t)
	r.done(r.onServer(beginOf("x", data)))
	r.done(r.onServer(chunkOf("x", data, 0, 10)))
	image := r.m.Snapshot()
	var before bytes.Buffer
	if err := image.Encode(&before); err != nil {
		t.Fatal(err)
	}
	r.done(r.onServer(chunkOf("x", data, 10, len(data))))
	r.done(r.onServer(commitOf("x")))
	var after bytes.Buffer
	if err := image.Encode(&after); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before.Bytes(), after.Bytes()) {
		t.Error("the image changed")
	}
}

func TestBackupHoldsNoSecretsAndReadsBack(t *testing.T) {
	r, data, holder, _ := backedUp(t)
	if bytes.Contains(data, holder.info.Secret[:]) {
		t.Error("the backup holds the secret of a session")
	}
	if !bytes.Contains(r.snapshot(), holder.info.Secret[:]) {
		t.Fatal("the test looks for the wrong thing")
	}
	v, err := ReadBackup(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := v.Tree.Exists("/lock/1"); !ok {
		t.Error("the backup does not show who held the lock")
	}
}

// Values that are nil, empty and not empty come back as they were.
func TestEmptyDataComesBackFromABackup(t *testing.T) {
	r := newRig(t)
	s := r.open(1)
	want := map[string][]byte{"/nil": nil, "/empty": {}, "/zero": {0}, "/large": bytes.Repeat([]byte("x"), 1<<20)}
	for path, data := range want {
		op := create(path)
		op.Data = data
		r.done(s.write(op))
	}
	data := r.backup()
	for path := range want {
		r.done(s.write(set(path, "other")))
	}
	r.done(r.onServer(beginOf("x", data)))
	for at := 0; at < len(data); at += MaxRestoreChunk {
		r.done(r.onServer(chunkOf("x", data, at, min(at+MaxRestoreChunk, len(data)))))
	}
	r.done(r.onServer(commitOf("x")))
	for path, data := range want {
		got, st, err := r.m.state.Tree.Get(path, &znode.Caller{})
		if err != nil || !bytes.Equal(got, data) || (got == nil) != (data == nil) || int(st.DataLength) != len(data) {
			t.Errorf("%s: %d bytes (nil %v), stat %+v, %v", path, len(got), got == nil, st, err)
		}
	}
}

func TestAwaitRestoreEndsWithItsContext(t *testing.T) {
	r, data, _, _ := backedUp(t)
	if err := r.m.AwaitRestore(t.Context(), restoreNonce("x")); !errors.Is(err, znode.ErrBadArguments) {
		t.Errorf("of a restore that is not there: %v", err)
	}
	r.bring("x", data)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.m.AwaitRestore(ctx, restoreNonce("x")); err != nil {
		t.Error(err)
	}
}

func TestRecoveredStateBelongsToANewClusterAndHasNoSessions(t *testing.T) {
	r, _, holder, other := backedUp(t)
	before := r.m.Zxid()
	n, err := r.m.Recover(Recovery{ClusterID: "c-2", MinEpoch: 1000, Index: r.index + 1})
	if err != nil || n != 2 {
		t.Fatal(n, err)
	}
	r.index++
	r.reborn()
	if z := r.m.Zxid(); z != zxid.Make(1000, 1) || z <= before || r.m.Index() != r.index || r.m.state.ClusterID != "c-2" {
		t.Errorf("at %s, index %d, of cluster %s", z, r.m.Index(), r.m.state.ClusterID)
	}
	if r.exists("/lock/2") || !r.exists("/later") {
		t.Error("the lock of a session that ended is held, or a write is lost")
	}
	for _, c := range []*client{holder, other} {
		r.is(r.one(c.write(create("/no"))), StatusGone, session.ErrExpired)
	}
	r.epoch(0)
	if z := r.m.Zxid(); z.Epoch() != 1001 {
		t.Errorf("the first leader opened epoch %d", z.Epoch())
	}
}
