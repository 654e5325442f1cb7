package fsm

import (
	"encoding/binary"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/zxid"
)

const (
	// MaxRestoreBytes bounds a backup that is restored: every replica holds all
	// of it in memory, beside the state it replaces. Like the bounds in bounds.go
	// it is part of the outcome of apply.
	MaxRestoreBytes = 4 << 30
	// MaxRestoreChunk bounds the bytes of one RestoreChunk, so that an entry that
	// carries one costs the writes behind it no more than a full batch does.
	MaxRestoreChunk = 512 << 10
	// MaxRestoreID bounds the id of a restore, in bytes.
	MaxRestoreID = 64
	// MaxRestoreEpoch bounds the epoch that a restore may lead to. It leaves a
	// million leaderships: a token that is mistyped must not use up all ids.
	MaxRestoreEpoch = zxid.MaxEpoch - 1<<20
	// restoreIdle is how long a restore that was begun may stand still, by the
	// state's clock, before it is forgotten: whoever began it is gone, and
	// nothing else would give its memory back.
	restoreIdle = 10 * time.Minute
)

// RestoreBegin announces a backup. Whatever another one had brought so far is
// dropped: of two restores at a time the later one wins.
type RestoreBegin struct {
	// ID is drawn by who asks for the restore. One whose id is that of the last
	// backup that was restored is done already.
	ID string
	// Nonce is drawn by the server that carries this attempt out; chunks and
	// commit of another attempt are refused.
	Nonce session.Nonce
	Size  int64 // bytes, above 0
	// SHA256 is that of all the bytes. They are what Image.Encode wrote.
	SHA256 [32]byte
}

// RestoreChunk brings the next bytes of a backup.
type RestoreChunk struct {
	Nonce  session.Nonce
	Offset int64 // of Data in the backup: the number of bytes before it
	Data   []byte
}

// RestoreCommit puts the backup that has come in the place of the tree. Every
// session ends, and the epoch rises over everything that was ever issued here
// and in the backup.
type RestoreCommit struct {
	Nonce session.Nonce
	// MinEpoch is the least epoch afterwards: seconds since 2024 by the cluster's
	// clock, and more if an operator knows of larger tokens.
	MinEpoch uint32
	// IntoEmpty refuses unless the tree has no znodes but its own.
	IntoEmpty bool
	// Abandon drops what has come, and nothing else is done.
	Abandon bool
}

// Restored is what is remembered of the last backup that was restored.
type Restored struct {
	ID       string  // empty: none ever was
	Zxid     zxid.ID // of the restore, the first one of its epoch
	Znodes   int64
	Sessions int64 // that it ended
}

func appendRestoreBegin(dst []byte, b *RestoreBegin) []byte {
	dst = appendString(dst, b.ID)
	dst = append(dst, b.Nonce[:]...)
	dst = binary.AppendVarint(dst, b.Size)
	return append(dst, b.SHA256[:]...)
}

func restoreBegin(r *reader) *RestoreBegin {
	b := &RestoreBegin{ID: r.string()}
	r.fixed(b.Nonce[:])
	b.Size = r.varint()
	r.fixed(b.SHA256[:])
	return b
}

func appendRestoreChunk(dst []byte, c *RestoreChunk) []byte {
	dst = append(dst, c.Nonce[:]...)
	dst = binary.AppendVarint(dst, c.Offset)
	return appendBytes(dst, c.Data)
}

// restoreChunk leaves Data a part of the input.
func restoreChunk(r *reader) *RestoreChunk {
	c := &RestoreChunk{}
	r.fixed(c.Nonce[:])
	c.Offset = r.varint()
	c.Data = r.bytes()
	return c
}

func appendRestoreCommit(dst []byte, c *RestoreCommit) []byte {
	dst = append(dst, c.Nonce[:]...)
	dst = binary.AppendUvarint(dst, uint64(c.MinEpoch))
	dst = appendBool(dst, c.IntoEmpty)
	return appendBool(dst, c.Abandon)
}

func restoreCommit(r *reader) *RestoreCommit {
	c := &RestoreCommit{}
	r.fixed(c.Nonce[:])
	c.MinEpoch = uint32(r.narrow(1<<32 - 1))
	c.IntoEmpty = r.bool()
	c.Abandon = r.bool()
	return c
}

func appendRestored(dst []byte, d *Restored) []byte {
	dst = appendString(dst, d.ID)
	dst = binary.AppendUvarint(dst, uint64(d.Zxid))
	dst = binary.AppendVarint(dst, d.Znodes)
	return binary.AppendVarint(dst, d.Sessions)
}

func decodeRestored(r *reader) Restored {
	return Restored{ID: r.string(), Zxid: zxid.ID(r.uvarint()), Znodes: r.varint(), Sessions: r.varint()}
}

func (d *Restored) digest(h hash) hash {
	return h.string(d.ID).uint64(uint64(d.Zxid)).uint64(uint64(d.Znodes)).uint64(uint64(d.Sessions))
}
