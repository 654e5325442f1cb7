package cluster

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/fsm"
)

// replayed is a state made of everything that can be read in a data directory.
type replayed struct {
	machine  *fsm.Machine
	snapshot uint64 // index it began with, 0: none
	last     logPosition
	config   raft.Configuration // the newest, agreed on or not
	lost     error              // what of it cannot be read, so that nothing behind last is in it; nil: all can
}

// replay restores the newest snapshot that can be read, as a start does, and
// applies the log up to its end or to the first entry that is damaged. It changes
// nothing.
func (s *stores) replay() (*replayed, error) {
	var stopped error
	p := &replayed{machine: fsm.New(fsm.Options{Fatal: func(err error) { stopped = err }})}
	meta, err := s.replaySnapshot(p)
	if err != nil {
		return nil, err
	}
	goesOn, err := s.logGoesOn(meta)
	if err != nil {
		p.lost = errors.Join(p.lost, err)
	}
	end, _ := s.log.LastIndex() // from memory: cannot fail
	machine := p.machine.Raft()
	for i := p.last.index + 1; goesOn && i <= end && stopped == nil; i++ {
		var l raft.Log
		if err := s.log.read(i, &l); err != nil {
			p.lost = errors.Join(p.lost, err)
			break
		}
		if l.Type == raft.LogConfiguration {
			if p.config, err = decodeConfiguration(l.Data); err != nil {
				return nil, fmt.Errorf("log entry %d: %w", i, err)
			}
		}
		machine.Apply(&l)
		p.last = logPosition{l.Index, l.Term}
	}
	if p.lost == nil {
		p.lost = checkTail(s.log, s.noted)
	}
	return p, stopped
}

// replaySnapshot begins p with the newest snapshot that can be read, and returns
// it; nil if there never was one.
func (s *stores) replaySnapshot(p *replayed) (*raft.SnapshotMeta, error) {
	list, err := s.snaps.List()
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	for _, meta := range list {
		if err := s.restoreInto(p.machine, meta.ID); err != nil {
			p.lost = errors.Join(p.lost, fmt.Errorf("snapshot %s: %w", meta.ID, err))
			continue
		}
		p.snapshot, p.config, p.last = meta.Index, meta.Configuration, logPosition{meta.Index, meta.Term}
		return meta, nil
	}
	first, _ := s.log.FirstIndex() // from memory: cannot fail
	if err := checkWithoutSnapshot(s.snaps, first); err != nil {
		return nil, errors.Join(err, p.lost)
	}
	return nil, nil
}

func (s *stores) restoreInto(m *fsm.Machine, id string) error {
	_, r, err := s.snaps.Open(id)
	if err != nil {
		return err
	}
	return errors.Join(m.Restore(r), r.Close())
}

// logGoesOn says whether the log is the one that the snapshot was made of, and not
// one that it was about to replace.
func (s *stores) logGoesOn(meta *raft.SnapshotMeta) (bool, error) {
	first, _ := s.log.FirstIndex() // both from memory: cannot fail
	last, _ := s.log.LastIndex()
	if meta == nil || last <= meta.Index {
		return meta == nil, nil
	}
	return continues(s.log, first, meta)
}
