package fsm

import (
	"encoding/binary"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

// An encoded command:
//
//	byte    format version
//	byte    kind
//	uint32  attempt, little endian, at a fixed place so that it can be patched
//	byte    line: 0 none, 1 session, 2 server
//	        session: uvarint id, uvarint generation
//	        server:  string name, uvarint boot
//	uvarint seq, uvarint ack, uvarint term
//	        the body of the kind
//
// Numbers are uvarints (zigzag where they may be negative) in their shortest
// form, strings and data have their length in front. Each command has exactly
// one encoding.
const (
	commandVersion = 1
	attemptOffset  = 2
	lineOffset     = 6

	noLine      = 0
	sessionLine = 1
	serverLine  = 2
)

// AppendCommand appends the encoding of c to dst. A body that c.Kind needs and
// that is nil is written as an empty one. If c.Write has a request id, its Hash
// is set.
func AppendCommand(dst []byte, c *Command) []byte {
	dst = append(dst, commandVersion, byte(c.Kind))
	dst = binary.LittleEndian.AppendUint32(dst, c.Attempt)
	dst = appendLine(dst, &c.Line)
	dst = binary.AppendUvarint(dst, c.Seq)
	dst = binary.AppendUvarint(dst, c.Ack)
	dst = binary.AppendUvarint(dst, c.Term)
	return appendBody(dst, c)
}

// SetAttempt changes the attempt number of an encoded command in place. It does
// nothing to bytes too short to be one.
func SetAttempt(b []byte, attempt uint32) {
	if len(b) >= lineOffset {
		binary.LittleEndian.PutUint32(b[attemptOffset:], attempt)
	}
}

func appendLine(dst []byte, l *LineRef) []byte {
	switch l.kind() {
	case lineSession:
		dst = append(dst, sessionLine)
		dst = binary.AppendUvarint(dst, uint64(l.Session))
		return binary.AppendUvarint(dst, l.Generation)
	case lineServer:
		dst = append(dst, serverLine)
		dst = appendString(dst, l.Server)
		return binary.AppendUvarint(dst, l.Boot)
	default:
		return append(dst, noLine)
	}
}

func appendBody(dst []byte, c *Command) []byte {
	switch c.Kind {
	case CmdNewEpoch:
		return appendEpoch(dst, orEmpty(c.Epoch))
	case CmdBoot:
		b := orEmpty(c.Boot)
		return binary.AppendUvarint(appendString(dst, b.Server), b.Nonce)
	case CmdOpen:
		return appendOpen(dst, orEmpty(c.Open))
	case CmdAttach:
		return appendAttach(dst, orEmpty(c.Attach))
	case CmdWrite:
		return appendWrite(dst, orEmpty(c.Write))
	case CmdSkip:
		return binary.AppendUvarint(dst, uint64(uint32(c.Code)))
	case CmdIdentities:
		return appendIdentities(dst, c.Identities)
	case CmdExpire, CmdUnsuspect:
		return appendExpire(dst, orEmpty(c.Expire))
	case CmdSuspect:
		e := orEmpty(c.Expire)
		return binary.AppendVarint(appendExpire(dst, e), int64(e.Silent))
	case CmdReap:
		return appendReap(dst, c.Reap)
	case CmdTrim:
		return appendTrim(dst, c.Trim)
	case CmdKill:
		k := orEmpty(c.Kill)
		return append(binary.AppendUvarint(dst, uint64(k.Session)), byte(k.Reason))
	case CmdFeature:
		return binary.AppendUvarint(dst, uint64(c.Feature))
	case CmdRemoveServer:
		return appendString(dst, c.Server)
	case CmdRestoreBegin:
		return appendRestoreBegin(dst, orEmpty(c.Begin))
	case CmdRestoreChunk:
		return appendRestoreChunk(dst, orEmpty(c.Chunk))
	case CmdRestoreCommit:
		return appendRestoreCommit(dst, orEmpty(c.Commit))
	default: // Close has no body
		return dst
	}
}

func orEmpty[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}

func appendEpoch(dst []byte, e *NewEpoch) []byte {
	dst = binary.AppendUvarint(dst, e.Term)
	dst = binary.AppendVarint(dst, e.Clock)
	dst = binary.AppendUvarint(dst, uint64(e.MinEpoch))
	return appendString(dst, e.ClusterID)
}

func appendOpen(dst []byte, o *Open) []byte {
	dst = append(dst, o.Nonce[:]...)
	dst = append(dst, o.Secret[:]...)
	dst = append(dst, byte(o.Protocol))
	dst = binary.AppendVarint(dst, int64(o.Timeout))
	dst = appendString(dst, o.Name)
	dst = appendString(dst, o.Identity)
	dst = binary.AppendUvarint(dst, uint64(o.Expect))
	return appendPlace(dst, o.Server, o.Boot, o.Address, o.Identities)
}

func appendAttach(dst []byte, a *Attach) []byte {
	dst = binary.AppendUvarint(dst, uint64(a.Session))
	dst = append(dst, a.Secret[:]...)
	dst = append(dst, a.Nonce[:]...)
	dst = append(dst, byte(a.Protocol))
	dst = binary.AppendUvarint(dst, a.Connection)
	dst = binary.AppendUvarint(dst, a.Expect)
	dst = binary.AppendVarint(dst, int64(a.Timeout))
	return appendPlace(dst, a.Server, a.Boot, a.Address, a.Identities)
}

// appendPlace writes where a connection is and who is at its other end.
func appendPlace(dst []byte, server string, boot uint64, address string, ids []session.Identity) []byte {
	dst = appendString(dst, server)
	dst = binary.AppendUvarint(dst, boot)
	dst = appendString(dst, address)
	return appendIdentities(dst, ids)
}

func appendIdentities(dst []byte, ids []session.Identity) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ids)))
	for _, id := range ids {
		dst = appendString(dst, id.Scheme)
		dst = appendString(dst, id.ID)
	}
	return dst
}

func appendExpire(dst []byte, e *Expire) []byte {
	dst = binary.AppendUvarint(dst, uint64(e.Session))
	dst = binary.AppendUvarint(dst, e.Generation)
	dst = binary.AppendUvarint(dst, e.Touched)
	return binary.AppendUvarint(dst, e.Term)
}

func appendReap(dst []byte, reaps []znode.Reap) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(reaps)))
	for _, r := range reaps {
		dst = appendString(dst, r.Path)
		dst = binary.AppendUvarint(dst, uint64(r.Mzxid))
		dst = binary.AppendUvarint(dst, uint64(r.Pzxid))
	}
	return dst
}

func appendTrim(dst []byte, trims []Trim) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(trims)))
	for _, t := range trims {
		dst = binary.AppendUvarint(dst, uint64(t.Session))
		dst = binary.AppendUvarint(dst, t.Upto)
	}
	return dst
}
