package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/cespare/xxhash/v2"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/hashicorp/go-hclog"
)

// votesFile holds term and vote once more.
const votesFile = "votes"

// A record of votes is magic, term, term of the vote, length of the candidate and
// the candidate, and a checksum; it never leaves the first sector of the file.
const (
	votesMagic     = "coordvt1"
	maxVotesBytes  = 512
	votesFixed     = len(votesMagic) + 3*8
	maxCandidateID = maxVotesBytes - votesFixed - 8
)

// ballot is what a server has promised: the newest term it knows, and for whom it
// voted in which.
type ballot struct {
	term, voteTerm uint64
	candidate      string
}

// votes is the store of Raft's term and vote. Both are kept twice: in bbolt, and
// in a small file with a checksum. bbolt has no checksums but of its two meta
// pages, and when the newer one is damaged it quietly goes back to what was
// before: a server that forgets its last vote may vote twice in a term, and then
// there are two leaders.
//
// The file is written first. So if it can be read it is the newest that anybody
// was told; if not, its last write was torn, of which nobody was told, or the
// file is damaged, and either way bbolt has what counts. bbolt is never ahead of
// it: if it seems so, one of the two has lost a write or has a flipped bit, and
// nobody knows which.
//
// Raft gives the term of a vote and then its candidate, and answers after that. The
// two are written together: the new term with the candidate of the vote before
// would be a vote that was never given.
//
// It is safe for concurrent use.
type votes struct {
	bolt *raftboltdb.BoltStore
	path string

	mu     sync.Mutex // guards below
	f      *os.File
	now    ballot
	copied ballot // what bbolt has
	half   uint64 // the term of a vote whose candidate is still to come
}

// openVotes opens the copy beside bolt and makes both the same.
func openVotes(dir string, bolt *raftboltdb.BoltStore, log hclog.Logger) (*votes, error) {
	v := &votes{bolt: bolt, path: filepath.Join(dir, votesFile)}
	inBolt, err := ballotOf(bolt)
	if err != nil {
		return nil, asDamage(filepath.Join(dir, stableFile), err)
	}
	found, err := exists(v.path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", v.path, err)
	}
	if !found {
		if inBolt != (ballot{}) {
			return nil, fmt.Errorf("%s is missing, but there is Raft state: %w", v.path, errDiskNotWhole)
		}
		if err := writeFileDurably(v.path, ballot{}.encode()); err != nil {
			return nil, fmt.Errorf("create %s: %w", v.path, err)
		}
	}
	if v.f, err = os.OpenFile(v.path, os.O_RDWR, fileMode); err != nil {
		return nil, fmt.Errorf("open %s: %w", v.path, err)
	}
	return v, v.settle(inBolt, log)
}

// settle takes the file's word, if it gives one, and else that of bbolt. It refuses
// what cannot be.
func (v *votes) settle(inBolt ballot, log hclog.Logger) error {
	b := make([]byte, maxVotesBytes)
	n, _ := v.f.ReadAt(b, 0)
	inFile, err := decodeBallot(b[:n])
	v.copied = inBolt
	switch {
	case err != nil:
		log.Warn("the copy of term and vote cannot be read and is written anew", "file", v.path, "error", err)
		v.now = inBolt
		return v.writeLocked()
	case inFile == inBolt:
		v.now = inFile
		return nil
	case inBolt.ahead(inFile):
		return fmt.Errorf("%s: %w: it has term %d and a vote in term %d, expected at least %d and %d, which are in %s: %s",
			v.path, errDamaged, inFile.term, inFile.voteTerm, inBolt.term, inBolt.voteTerm, stableFile, whatToDo)
	}
	log.Warn("term or vote differ from their copy, which is newer", "file", v.path,
		"term", inBolt.term, "copy", inFile.term)
	v.now = inFile
	return v.copyToBolt()
}

// ahead says that b has seen or promised more than other. What a bootstrap that was
// cut short has left is taken back on purpose (forgetUnfinishedBootstrap).
func (b ballot) ahead(other ballot) bool {
	if other == (ballot{}) && b == (ballot{term: 1}) {
		return false
	}
	return b.term > other.term || b.voteTerm > other.voteTerm
}

// copyToBolt writes what bbolt does not have. The caller holds the lock, or is the
// only one that knows v.
func (v *votes) copyToBolt() error {
	var errs []error
	if v.copied.term != v.now.term {
		errs = append(errs, v.bolt.SetUint64(keyCurrentTerm, v.now.term))
	}
	if v.copied.voteTerm != v.now.voteTerm {
		errs = append(errs, v.bolt.SetUint64(keyLastVoteTerm, v.now.voteTerm))
	}
	if v.copied.candidate != v.now.candidate {
		errs = append(errs, v.bolt.Set(keyLastVoteCand, []byte(v.now.candidate)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("bring term and vote up to date: %w", err)
	}
	v.copied = v.now
	return nil
}

func ballotOf(bolt *raftboltdb.BoltStore) (b ballot, err error) {
	for _, n := range []struct {
		key []byte
		to  *uint64
	}{{keyCurrentTerm, &b.term}, {keyLastVoteTerm, &b.voteTerm}} {
		raw, err := getStable(bolt, n.key)
		if err != nil {
			return ballot{}, fmt.Errorf("read %s: %w", n.key, err)
		}
		if raw != nil && len(raw) != 8 {
			return ballot{}, fmt.Errorf("%s has %d bytes, expected 8", n.key, len(raw))
		}
		if raw != nil {
			*n.to = binary.BigEndian.Uint64(raw)
		}
	}
	cand, err := getStable(bolt, keyLastVoteCand)
	if err == nil && len(cand) > maxCandidateID {
		err = fmt.Errorf("%s has %d bytes, expected at most %d", keyLastVoteCand, len(cand), maxCandidateID)
	}
	b.candidate = string(cand)
	return b, err
}

func (b ballot) encode() []byte {
	out := append(make([]byte, 0, maxVotesBytes), votesMagic...)
	out = binary.LittleEndian.AppendUint64(out, b.term)
	out = binary.LittleEndian.AppendUint64(out, b.voteTerm)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(b.candidate)))
	out = append(out, b.candidate...)
	return binary.LittleEndian.AppendUint64(out, xxhash.Sum64(out))
}

func decodeBallot(b []byte) (ballot, error) {
	if len(b) < votesFixed+8 || string(b[:len(votesMagic)]) != votesMagic {
		return ballot{}, errors.New("it does not begin as one")
	}
	at := b[len(votesMagic):]
	n := binary.LittleEndian.Uint64(at[16:])
	if n > uint64(maxCandidateID) || votesFixed+int(n)+8 > len(b) {
		return ballot{}, fmt.Errorf("a candidate of %d bytes", n)
	}
	end := votesFixed + int(n)
	if xxhash.Sum64(b[:end]) != binary.LittleEndian.Uint64(b[end:]) {
		return ballot{}, errors.New("its checksum is wrong")
	}
	return ballot{
		term: binary.LittleEndian.Uint64(at), voteTerm: binary.LittleEndian.Uint64(at[8:]),
		candidate: string(b[votesFixed:end]),
	}, nil
}

func (v *votes) writeLocked() error {
	if v.f == nil {
		return fs.ErrClosed
	}
	if _, err := v.f.WriteAt(v.now.encode(), 0); err != nil {
		return fmt.Errorf("write %s: %w", v.path, err)
	}
	if err := v.f.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", v.path, err)
	}
	return nil
}

// set puts a new value of one of the keys into both places, the file first. The
// term of a vote waits for its candidate. ok is false if the key is not one of them.
func (v *votes) set(key, value []byte) (ok bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.now
	switch string(key) {
	case string(keyCurrentTerm):
		v.now.term = binary.BigEndian.Uint64(value)
	case string(keyLastVoteTerm):
		v.half = binary.BigEndian.Uint64(value)
		return true, nil
	case string(keyLastVoteCand):
		if len(value) > maxCandidateID {
			return true, fmt.Errorf("a candidate of %d bytes, at most %d", len(value), maxCandidateID)
		}
		v.now.voteTerm, v.now.candidate = max(v.now.voteTerm, v.half), string(value)
	default:
		return false, nil
	}
	err = v.writeLocked()
	if err == nil {
		err = v.copyToBolt()
	}
	if err != nil { // nobody is told, and Raft must not find a vote that a crash can take back
		v.now = before
	}
	return true, err
}

// get returns the value of one of the keys as Raft has stored it; the term of a
// vote once its candidate is known.
func (v *votes) get(key []byte) (value []byte, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch string(key) {
	case string(keyCurrentTerm):
		return number(v.now.term), true
	case string(keyLastVoteTerm):
		return number(v.now.voteTerm), true
	case string(keyLastVoteCand):
		return []byte(v.now.candidate), true
	}
	return nil, false
}

// number is how a number stands in the stable store; nil for one never stored.
func number(n uint64) []byte {
	if n == 0 {
		return nil
	}
	return binary.BigEndian.AppendUint64(nil, n)
}

func (v *votes) close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.f == nil {
		return nil
	}
	err := v.f.Close()
	v.f = nil
	return err
}
