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
	"github.com/hashicorp/raft"
)

// tailFile notes how far the log goes.
const tailFile = "tail"

// A note is magic, index and term of the last entry, and a checksum, in the first
// sector of the file.
const (
	tailMagic = "coordtl1"
	tailBytes = len(tailMagic) + 3*8
)

// tailNote says how far the log goes, outside of the log. When raft-wal opens a
// log it takes the first thing that makes no sense for the end of a write that
// was torn, and goes on from there: after a crash that is right, and if a disk
// has lost a sector it quietly takes back what was acknowledged. The log cannot
// tell the two apart; the note can.
//
// It is written after each append and not flushed, which costs a microsecond: a
// killed process leaves it exact, and a machine that lost power may leave an
// older one. The log is never shorter than the note says: an entry is noted when
// it is on the disk, and before a suffix is deleted the note is lowered, and
// flushed. A note that cannot be read says nothing.
//
// It is safe for concurrent use.
type tailNote struct {
	mu sync.Mutex
	f  *os.File
}

// openTail opens the note of the directory, making it if it is not there, and
// returns what it says; zero if nothing.
func openTail(dir string) (*tailNote, logPosition, error) {
	path := filepath.Join(dir, tailFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, logPosition{}, fmt.Errorf("open %s: %w", path, err)
	}
	var b [tailBytes]byte
	n, _ := f.ReadAt(b[:], 0)
	return &tailNote{f: f}, decodeTail(b[:n]), nil
}

func (p logPosition) encodeTail() []byte {
	b := append(make([]byte, 0, tailBytes), tailMagic...)
	b = binary.LittleEndian.AppendUint64(b, p.index)
	b = binary.LittleEndian.AppendUint64(b, p.term)
	return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
}

func decodeTail(b []byte) logPosition {
	if len(b) != tailBytes || string(b[:len(tailMagic)]) != tailMagic {
		return logPosition{}
	}
	if xxhash.Sum64(b[:tailBytes-8]) != binary.LittleEndian.Uint64(b[tailBytes-8:]) {
		return logPosition{}
	}
	at := b[len(tailMagic):]
	return logPosition{binary.LittleEndian.Uint64(at), binary.LittleEndian.Uint64(at[8:])}
}

// note writes down the last entry of the log. With durable it is on the disk
// when this returns.
func (t *tailNote) note(p logPosition, durable bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.f == nil {
		return fs.ErrClosed
	}
	if _, err := t.f.WriteAt(p.encodeTail(), 0); err != nil {
		return fmt.Errorf("note the end of the log: %w", err)
	}
	if !durable {
		return nil
	}
	if err := t.f.Sync(); err != nil {
		return fmt.Errorf("note the end of the log: %w", err)
	}
	return nil
}

// close flushes the note. It may be called twice.
func (t *tailNote) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.f == nil {
		return nil
	}
	err := errors.Join(t.f.Sync(), t.f.Close())
	t.f = nil
	return err
}

// checkTail refuses a log that does not have what was noted of it.
func checkTail(log *logStore, noted logPosition) error {
	if noted.index == 0 {
		return nil
	}
	last, _ := log.LastIndex() // from memory: cannot fail
	if last < noted.index {
		return fmt.Errorf("%s: %w: the log ends at index %d, expected %d or more: entries that were acknowledged are gone: %s",
			log.path, errDamaged, last, noted.index, whatToDo)
	}
	if first, _ := log.FirstIndex(); first > noted.index {
		return nil // a snapshot has taken the place of all that was noted
	}
	var l raft.Log
	if err := log.read(noted.index, &l); err != nil {
		return err
	}
	if l.Term != noted.term {
		return fmt.Errorf("%s: %w: the entry %d is of term %d, expected %d: %s",
			log.path, errDamaged, noted.index, l.Term, noted.term, whatToDo)
	}
	return nil
}
