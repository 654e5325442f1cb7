package session

import (
	"encoding/binary"
	"math"
	"time"
)

// The fixed form of each thing without its remembered values, in one place for
// the digest and the image. A field that is added to a struct is added here;
// TestEveryFieldIsKept fails for one that is forgotten.

func appendUint64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendSession(b []byte, s *Session) []byte {
	b = binary.AppendUvarint(b, uint64(s.ID))
	b = append(b, s.Secret[:]...)
	b = binary.AppendVarint(b, int64(s.Timeout))
	b = append(b, byte(s.Protocol))
	b = appendString(b, s.Name)
	b = appendString(b, s.Identity)
	b = append(b, s.OpenNonce[:]...)
	b = binary.AppendUvarint(b, s.Generation)
	b = append(b, s.AttachNonce[:]...)
	b = appendString(b, s.Server)
	b = binary.AppendUvarint(b, s.Boot)
	b = appendString(b, s.Address)
	b = binary.AppendUvarint(b, s.Touched)
	b = binary.AppendVarint(b, int64(s.Suspected))
	b = binary.AppendVarint(b, s.Opened)
	b = binary.AppendUvarint(b, uint64(len(s.Identities)))
	for _, i := range s.Identities {
		b = appendString(appendString(b, i.Scheme), i.ID)
	}
	return appendLine(b, &s.Line)
}

func (d *decoder) session() *Session {
	s := &Session{ID: ID(d.uvarint())}
	d.fixed(s.Secret[:])
	s.Timeout = time.Duration(d.varint())
	s.Protocol = Protocol(d.byte(byte(ZooKeeper)))
	s.Name = d.string()
	s.Identity = d.string()
	d.fixed(s.OpenNonce[:])
	s.Generation = d.uvarint()
	d.fixed(s.AttachNonce[:])
	s.Server = d.string()
	s.Boot = d.uvarint()
	s.Address = d.string()
	s.Touched = d.uvarint()
	s.Suspected = time.Duration(d.varint())
	s.Opened = d.varint()
	for n := d.count(math.MaxInt32); n > 0 && d.err == nil; n-- {
		s.Identities = append(s.Identities, Identity{Scheme: d.string(), ID: d.string()})
	}
	d.line(&s.Line)
	return s
}

func appendLine(b []byte, l *Line) []byte {
	b = binary.AppendUvarint(b, l.done)
	b = binary.AppendUvarint(b, l.acked)
	return binary.AppendUvarint(b, uint64(len(l.kept)-l.head))
}

// line reads the numbers of a line; kept is left with as many empty places as
// there are values to come.
func (d *decoder) line(l *Line) {
	l.done = d.uvarint()
	l.acked = d.uvarint()
	d.pending = d.uvarint()
	if l.acked > l.done || d.pending > l.done-l.acked {
		d.fail("a number line contradicts itself")
	}
}

func appendServerLine(b []byte, l *ServerLine) []byte {
	b = appendString(b, l.Server)
	b = appendUint64(b, l.Boot)
	b = binary.AppendUvarint(b, uint64(len(l.past)))
	for _, p := range l.past {
		b = appendUint64(b, p)
	}
	return appendLine(b, &l.Line)
}

func (d *decoder) serverLine() *ServerLine {
	l := &ServerLine{Server: d.string(), Boot: d.uint64()}
	for n := d.count(maxPastBoots); n > 0 && d.err == nil; n-- {
		l.past = append(l.past, d.uint64())
	}
	d.line(&l.Line)
	return l
}

func appendEnded(b []byte, e *Ended) []byte {
	b = binary.AppendUvarint(b, uint64(e.ID))
	b = binary.AppendUvarint(b, e.Next)
	b = append(b, byte(e.Reason))
	b = binary.AppendUvarint(b, uint64(e.Zxid))
	b = binary.AppendVarint(b, e.Time)
	b = appendString(b, e.Name)
	return binary.AppendVarint(b, int64(e.Timeout))
}

func (d *decoder) ended() *Ended {
	return &Ended{
		ID: ID(d.uvarint()), Next: d.uvarint(), Reason: EndReason(d.byte(byte(Restored))),
		Zxid: d.zxid(), Time: d.varint(), Name: d.string(), Timeout: time.Duration(d.varint()),
	}
}

func appendRequest(b []byte, r *Request) []byte {
	b = appendString(b, r.ID)
	b = binary.AppendVarint(b, r.End)
	return appendUint64(b, r.Hash)
}

func (d *decoder) request() *Request {
	return &Request{ID: d.string(), End: d.varint(), Hash: d.uint64()}
}
