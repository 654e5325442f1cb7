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
