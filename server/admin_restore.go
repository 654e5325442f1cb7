package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

const (
	// restoreChunk is how much of a backup one log entry carries: what a full
	// batch of small writes has, a quarter of it, so that writes go on in between.
	restoreChunk = 256 << 10
	// restoreWindow is how many chunks are proposed and not yet applied here.
	restoreWindow = 4
	// restoreStepBack is how long a restore steps back when clients' writes wait.
	restoreStepBack = 20 * time.Millisecond
	// quorumPatience is how long a restore waits for a quorum before it begins.
	quorumPatience = 10 * time.Second
	// restorePatience is how long a restore that has begun waits for one part of the
	// backup, or for its commit, to be applied here: far longer than an election or
	// a slow disk takes.
	restorePatience = 30 * time.Second
	// settleMost bounds the time that is left to the other servers for making
	// their tree, see settle.
	settleMost = 10 * time.Second
)

// Restore implements coordpb.AdminServer.
func (a adminService) Restore(stream grpc.ClientStreamingServer[coordpb.RestoreRequest, coordpb.RestoreReply]) error {
	if err := a.enterStream(stream.Context(), "restore"); err != nil {
		return err
	}
	s := a.s
	defer s.streams.done()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	s.workers.Go(func() { // the stream does not know that the server stops
		select {
		case <-ctx.Done():
		case <-s.stopping:
			cancel()
		}
	})
	r := &restoring{s: s, ctx: ctx, slots: make(chan struct{}, restoreWindow), failed: make(chan error, 1)}
	reply, err := r.run(stream.Recv)
	if err != nil {
		reply = &coordpb.RestoreReply{Error: a.outcome(err)}
		if errors.Is(err, session.ErrUnknownOutcome) {
			s.log.Warn("it is not known here whether a backup was restored", "event", "restore_unknown", "err", err)
		} else {
			s.log.Warn("nothing was restored", "event", "restore_failed", "err", err)
		}
	}
	return stream.SendAndClose(reply)
}

// restoring carries one backup into the log, on this server's number line: each
// step is applied exactly once, whoever leads.
type restoring struct {
	s     *Server
	ctx   context.Context //nolint:containedctx // lives as long as the call
	nonce session.Nonce
	begin *coordpb.RestoreBegin

	sent   int64         // bytes proposed
	part   []byte        // that do not make a chunk yet
	slots  chan struct{} // held by each chunk that is under way
	failed chan error    // has room for one: the first chunk that was refused
}

func (r *restoring) run(recv func() (*coordpb.RestoreRequest, error)) (*coordpb.RestoreReply, error) {
	first, err := recv()
	if err != nil {
		return nil, malformed("no announcement of a backup: %v", err)
	}
	minEpoch, err := r.check(first.GetBegin())
	if err != nil {
		return nil, err
	}
	r.begin = first.GetBegin()
	if _, err := rand.Read(r.nonce[:]); err != nil {
		return nil, fmt.Errorf("drawing a nonce: %w", err)
	}
	begun, err := r.proposeOne(&fsm.Command{Kind: fsm.CmdRestoreBegin, Begin: &fsm.RestoreBegin{
		ID: r.begin.GetId(), Nonce: r.nonce, Size: r.begin.GetSize(), SHA256: [sha256.Size]byte(r.begin.GetSha256()),
	}})
	switch {
	case errors.Is(err, errNotApplied):
		r.abandon() // it may still begin
		return nil, errStandstill
	case errors.Is(err, session.ErrUnknownOutcome):
		return nil, r.cut() // the beginning alone changes nothing
	case err != nil:
		return nil, err
	case begun.Err != nil:
		return nil, begun.Err
	case begun.Status == fsm.StatusRepeat:
		return r.reply() // an earlier call came as far as the commit
	}
	if err := r.bring(first.GetData(), recv); err != nil {
		r.abandon()
		return nil, err
	}
	return r.commit(minEpoch)
}

// check refuses at once what would be refused in the end, and returns the least
// epoch afterwards.
func (r *restoring) check(b *coordpb.RestoreBegin) (minEpoch uint32, err error) {
	if b == nil || len(b.GetSha256()) != sha256.Size {
		return 0, malformed("the first message does not announce a backup with its SHA-256")
	}
	// Without a quorum the log would take nothing, and say so never.
	ctx, cancel := context.WithTimeout(r.ctx, quorumPatience)
	defer cancel()
	if err := r.s.node.Linearize(ctx); err != nil {
		return 0, noQuorum(err)
	}
	now, err := r.s.clusterTime(ctx)
	if err != nil {
		return 0, err
	}
	least := uint64(cluster.EpochAt(time.UnixMilli(now))) // 64 bits: behind the largest epoch there is 0 else
	if token := zxid.ID(b.GetMinToken()); token != 0 {
		least = max(least, uint64(token.Epoch())+1)
	}
	minEpoch = uint32(least)
	if least > fsm.MaxRestoreEpoch {
		return 0, fmt.Errorf("a token of %d leaves no room for those to come: %w", b.GetMinToken(), znode.ErrBadArguments)
	}
	if b.GetIntoEmpty() {
		r.s.machine.View(func(v *fsm.View) {
			if !v.Tree.Empty() {
				err = fmt.Errorf("the cluster has %d znodes and was to be empty: %w", v.Tree.Counts().Nodes, znode.ErrNotEmpty)
			}
		})
	}
	return minEpoch, err
}

// noQuorum is the error of a round that did not end in time.
func noQuorum(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no quorum answers: %w", fsm.ErrUnavailable)
	}
	return unavailable(err)
}

// bring proposes what comes, and returns when all of it has been applied here.
func (r *restoring) bring(first []byte, recv func() (*coordpb.RestoreRequest, error)) error {
	err := r.take(first)
	for err == nil {
		var req *coordpb.RestoreRequest
		if req, err = recv(); err == nil {
			err = r.take(req.GetData())
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if got := r.sent + int64(len(r.part)); got != r.begin.GetSize() {
		return fmt.Errorf("%d bytes of a backup of %d have come: %w", got, r.begin.GetSize(), znode.ErrBadArguments)
	}
	if err := r.propose(r.part); err != nil {
		return err
	}
	for range restoreWindow { // every slot: nothing is under way any more
		if err := r.slot(); err != nil {
			return err
		}
	}
	select {
	case err := <-r.failed:
		return err
	default:
		return nil
	}
}

// take cuts what comes into chunks.
func (r *restoring) take(data []byte) error {
	for len(data) > 0 {
		n := min(len(data), restoreChunk-len(r.part))
		r.part = append(r.part, data[:n]...)
		data = data[n:]
		if len(r.part) == restoreChunk {
			if err := r.propose(r.part); err != nil {
				return err
			}
			r.part = r.part[:0]
		}
	}
	return nil
}

// propose sends one chunk on its way, when there is a slot for it and clients'
// writes do not wait.
func (r *restoring) propose(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if err := r.slot(); err != nil {
		return err
	}
	for since, err := time.Now(), r.s.node.Overloaded(); err != nil; err = r.s.node.Overloaded() {
		if !errors.Is(err, fsm.ErrOverloaded) || time.Since(since) > restorePatience {
			return err
		}
		if err := r.pause(restoreStepBack); err != nil {
			return err
		}
	}
	c := &fsm.Command{Kind: fsm.CmdRestoreChunk, Chunk: &fsm.RestoreChunk{Nonce: r.nonce, Offset: r.sent, Data: data}}
	r.sent += int64(len(data))
	r.s.node.Propose(c, cluster.WaiterFunc(func(res *fsm.Result) {
		if res.Err != nil {
			select {
			case r.failed <- res.Err:
			default: // an earlier one says why
			}
		}
		<-r.slots
	}))
	return nil
}

var (
	// errNotApplied is returned for a command whose outcome is not known after
	// restorePatience.
	errNotApplied = fmt.Errorf("not applied within %s: %w", restorePatience, session.ErrUnknownOutcome)
	// errStandstill is returned when the cluster takes no more of a backup.
	errStandstill = fmt.Errorf("no part of the backup was taken for %s, as if there were no quorum; nothing was changed, and what was brought "+
		"is forgotten: begin again when there is a quorum: %w", restorePatience, fsm.ErrUnavailable)
	// errCommitUnknown is returned when all of the backup was brought, and nobody
	// says what became of it.
	errCommitUnknown = fmt.Errorf("the whole backup was brought, and then there was no answer for %s, as if there were no quorum; it is put in place "+
		"as soon as there is one, or was already: %w", restorePatience, session.ErrUnknownOutcome)
)

// proposeOne proposes a command and waits for its result, for restorePatience.
func (r *restoring) proposeOne(c *fsm.Command) (*fsm.Result, error) {
	ctx, cancel := context.WithTimeoutCause(r.ctx, restorePatience, errNotApplied)
	defer cancel()
	res, err := r.s.propose(ctx, c)
	if err != nil && errors.Is(context.Cause(ctx), errNotApplied) {
		err = errNotApplied
	}
	return res, err
}

// slot waits until fewer than restoreWindow chunks are under way.
func (r *restoring) slot() error {
	late := time.NewTimer(restorePatience)
	defer late.Stop()
	select {
	case <-late.C:
		return errStandstill
	case err := <-r.failed:
		return err
	case r.slots <- struct{}{}:
		return nil
	case <-r.ctx.Done():
		return r.cut()
	}
}

func (r *restoring) pause(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-r.ctx.Done():
		return r.cut()
	}
}

// cut is the error when the call ends early: nothing has been replaced then.
func (r *restoring) cut() error {
	select {
	case <-r.s.stopping:
		return fsm.ErrShuttingDown
	default:
		return fmt.Errorf("the call ended before the backup was whole: %w", r.ctx.Err())
	}
}

// abandon lets the servers forget what was brought. It does not wait.
func (r *restoring) abandon() {
	c := &fsm.Command{Kind: fsm.CmdRestoreCommit, Commit: &fsm.RestoreCommit{Nonce: r.nonce, Abandon: true}}
	r.s.node.Propose(c, cluster.WaiterFunc(func(*fsm.Result) {}))
}

// commit replaces the tree.
func (r *restoring) commit(minEpoch uint32) (*coordpb.RestoreReply, error) {
	if err := r.settle(); err != nil {
		r.abandon()
		return nil, err
	}
	res, err := r.proposeOne(&fsm.Command{Kind: fsm.CmdRestoreCommit, Commit: &fsm.RestoreCommit{
		Nonce: r.nonce, MinEpoch: minEpoch, IntoEmpty: r.begin.GetIntoEmpty(),
	}})
	if errors.Is(err, errNotApplied) {
		return nil, errCommitUnknown
	}
	if err != nil {
		return nil, err
	}
	if res.Err != nil {
		return nil, res.Err
	}
	return r.reply()
}

// settle waits until the tree of the backup stands beside the present one, and as
// long again, so that slower servers have theirs too: one that has not, waits for
// it when it applies the commit, and its clients wait with it.
func (r *restoring) settle() error {
	start := time.Now()
	err := r.s.machine.AwaitRestore(r.ctx, r.nonce)
	switch {
	case r.ctx.Err() != nil:
		return r.cut()
	case errors.Is(err, fsm.ErrBadSnapshot):
		return fmt.Errorf("%w: %w", err, znode.ErrBadArguments)
	case err != nil:
		return err
	}
	return r.pause(min(time.Since(start), settleMost))
}

// reply says what the restore with the caller's id has done.
func (r *restoring) reply() (*coordpb.RestoreReply, error) {
	var last fsm.Restored
	r.s.machine.View(func(v *fsm.View) { last = v.LastRestore })
	if last.ID != r.begin.GetId() {
		return nil, errors.New("the backup was restored, and another one has been since")
	}
	r.s.log.Info("a backup was restored", "event", "restored", "zxid", last.Zxid.String(), "znodes", last.Znodes, "sessions_ended", last.Sessions)
	return &coordpb.RestoreReply{Zxid: uint64(last.Zxid), Znodes: last.Znodes, SessionsEnded: last.Sessions}, nil
}
