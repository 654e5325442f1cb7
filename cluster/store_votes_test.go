package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A disk that has lost the last writes of the copy of term and vote, and says
// nothing, must not make a server forget whom it has voted for.
func TestVoteThatADiskHasLostIsFound(t *testing.T) {
	dir := t.TempDir()
	s := testStores(t, dir, logStoreBoltDB)
	vote := func(term uint64, candidate string) {
		must(t, s.stable.SetUint64(keyCurrentTerm, term))
		must(t, s.stable.SetUint64(keyLastVoteTerm, term))
		must(t, s.stable.Set(keyLastVoteCand, []byte(candidate)))
	}
	path := filepath.Join(dir, votesFile)
	vote(5, "n1~1")
	older, err := os.ReadFile(path)
	must(t, err)
	vote(7, "n2~1")
	newer, err := os.ReadFile(path)
	must(t, err)
	must(t, s.close())
	must(t, os.WriteFile(path, older, fileMode))
	_, err = openStores(testStoreConfig(t, dir, logStoreBoltDB))
	if !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "term 5") || !strings.Contains(err.Error(), "at least 7") {
		t.Errorf("it starts with the older vote: %v", err)
	}
	must(t, os.WriteFile(path, newer, fileMode))
	s = testStores(t, dir, logStoreBoltDB)
	if term, err := s.stable.GetUint64(keyLastVoteTerm); err != nil || term != 7 {
		t.Errorf("vote in term %d, %v", term, err)
	}
}

// A crash while an unfinished bootstrap is taken back leaves a term in one place.
func TestUnfinishedBootstrapIsForgottenHalfWay(t *testing.T) {
	dir := t.TempDir()
	s := testStores(t, dir, logStoreBoltDB)
	must(t, s.stable.SetUint64(keyCurrentTerm, 1))
	must(t, s.close())
	must(t, os.WriteFile(filepath.Join(dir, votesFile), ballot{}.encode(), fileMode)) // bbolt has not heard of it yet
	s = testStores(t, dir, logStoreBoltDB)
	if term, err := s.stable.GetUint64(keyCurrentTerm); err == nil {
		t.Errorf("term %d", term)
	}
}

// The term of a vote with the candidate of the vote before is a vote that nobody
// gave: Raft would confirm it to that candidate without a look at its log.
func TestHalfAVoteIsNeverOnTheDisk(t *testing.T) {
	dir := t.TempDir()
	s := testStores(t, dir, logStoreBoltDB)
	must(t, s.stable.SetUint64(keyCurrentTerm, 5))
	must(t, s.stable.SetUint64(keyLastVoteTerm, 5))
	must(t, s.stable.Set(keyLastVoteCand, []byte("n1~1")))
	must(t, s.stable.SetUint64(keyCurrentTerm, 7))
	must(t, s.stable.SetUint64(keyLastVoteTerm, 7)) // and the server is killed here
	must(t, s.close())
	want := ballot{term: 7, voteTerm: 5, candidate: "n1~1"}
	check := func(want ballot, bolt bool) {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(dir, votesFile))
		must(t, err)
		if inFile, err := decodeBallot(raw); err != nil || inFile != want {
			t.Errorf("%s has %+v, %v, want %+v", votesFile, inFile, err, want)
		}
		if bolt {
			must(t, os.WriteFile(filepath.Join(dir, votesFile), nil, fileMode)) // so that the other copy counts
		}
		s := testStores(t, dir, logStoreBoltDB)
		defer func() { must(t, s.close()) }()
		if s.stable.votes.now != want {
			t.Errorf("it opens with %+v, want %+v", s.stable.votes.now, want)
		}
	}
	check(want, false)
	check(want, true)
	s = testStores(t, dir, logStoreBoltDB)
	must(t, s.stable.SetUint64(keyLastVoteTerm, 7))
	must(t, s.stable.Set(keyLastVoteCand, []byte("n2~1")))
	must(t, s.close())
	want = ballot{term: 7, voteTerm: 7, candidate: "n2~1"}
	check(want, false)
	check(want, true)
}

// Raft confirms a vote that it finds to the one that got it. It must not find one
// that could not be written.
func TestVoteThatWasNotWrittenIsNotFound(t *testing.T) {
	s := testStores(t, t.TempDir(), logStoreBoltDB)
	must(t, s.stable.SetUint64(keyCurrentTerm, 7))
	must(t, s.stable.SetUint64(keyLastVoteTerm, 7))
	v := s.stable.votes
	must(t, v.f.Close())
	if _, err := v.set(keyLastVoteCand, []byte("n2~1")); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("a vote is stored in a file that is closed: %v", err)
	}
	if v.now != (ballot{term: 7}) {
		t.Errorf("it has %+v", v.now)
	}
}
