package fsm

import (
	"encoding/binary"
	"fmt"
)

// A batch is the data of one log entry:
//
//	byte    format version
//	int64   cluster time of the leader when it was sealed, ms, little endian
//	        then each command with its length in front
const (
	entryVersion    = 1
	batchHeaderSize = 1 + 8
)

// NewBatch begins a batch in dst, which may be nil or reused memory. clock is
// the cluster time: the state's clock when the leader opened its epoch, plus
// the leader's monotonic time since, in ms. A batch without commands is valid
// and only moves the clock.
func NewBatch(dst []byte, clock int64) []byte {
	dst = append(dst, entryVersion)
	return binary.LittleEndian.AppendUint64(dst, uint64(clock))
}

// AppendToBatch appends an encoded command to a batch.
func AppendToBatch(dst, cmd []byte) []byte { return appendBytes(dst, cmd) }

// ForEach calls f with each command of a batch, in order, until f fails. cmd is
// a part of b. It fails with ErrBadCommand if b is not a batch.
func ForEach(b []byte, f func(cmd []byte) error) error {
	e, err := openBatch(b)
	if err != nil {
		return err
	}
	for {
		cmd, more, err := e.next()
		if err != nil || !more {
			return err
		}
		if err := f(cmd); err != nil {
			return err
		}
	}
}

// BatchClock returns the cluster time in the header of a batch, in ms.
func BatchClock(b []byte) (int64, error) {
	e, err := openBatch(b)
	return e.clock, err
}

// batch walks over the commands of an entry.
type batch struct {
	clock int64
	r     reader
}

func openBatch(b []byte) (batch, error) {
	if len(b) == 0 {
		return batch{}, fmt.Errorf("%w: empty entry", ErrBadCommand)
	}
	if b[0] != entryVersion {
		return batch{}, fmt.Errorf("%w: entry of format version %d, this server knows %d; it is older than what wrote the log",
			ErrBadCommand, b[0], entryVersion)
	}
	if len(b) < batchHeaderSize {
		return batch{}, fmt.Errorf("%w: entry of %d bytes", ErrBadCommand, len(b))
	}
	clock := int64(binary.LittleEndian.Uint64(b[1:]))
	return batch{clock: clock, r: reader{b: b[batchHeaderSize:]}}, nil
}

// next returns the next command; more is false at the end.
func (e *batch) next() (cmd []byte, more bool, err error) {
	if len(e.r.b) == 0 {
		return nil, false, e.r.err
	}
	cmd = e.r.bytes()
	return cmd, e.r.err == nil, e.r.err
}
