package fsm

import (
	"math"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// DecodeCommand decodes b into c, which is overwritten. Data of ops and chunks aliases b;
// everything else is copied. Bytes that AppendCommand would not have written
// are refused with ErrBadCommand.
func DecodeCommand(b []byte, c *Command) error {
	var d decoder
	err := d.decode(b)
	*c = d.Command
	return err
}

// PeekLine reads the line and the number of an encoded command without decoding
// its body. ok is false if b is not a command. A command without line gives the
// zero LineRef and number 0.
func PeekLine(b []byte) (line LineRef, seq uint64, ok bool) {
	r := reader{b: b}
	var d decoder
	d.header(&r)
	return d.Line, d.Seq, r.err == nil
}

// decoder decodes commands one after the other into the same memory, so that a
// plain write costs no more allocations than the strings that are kept of it.
// The embedded Command is valid until the next decode.
type decoder struct {
	Command
	write   Write
	ops     []znode.Op
	servers [2]string // names seen last: a line's name comes again and again
}

// maxKeptOps is how many ops a decoder keeps room for between commands.
const maxKeptOps = 64

func (d *decoder) decode(b []byte) error {
	d.Command = Command{}
	r := reader{b: b}
	d.header(&r)
	d.body(&r)
	return r.done()
}

// release lets go of the bytes that were decoded: the data of ops points into
// them, and a decoder that is not used for a while would pin them.
func (d *decoder) release() { clear(d.ops); d.Chunk = nil }

func (d *decoder) header(r *reader) {
	if v := r.byte(); r.err == nil && v != commandVersion {
		r.fail("command of format version %d, this server knows %d; it is older than what wrote the log", v, commandVersion)
	}
	d.Kind = Kind(r.byte())
	if r.err == nil && !d.Kind.known() {
		r.fail("command of kind %d, this server knows kinds up to %d; it is older than what wrote the log", uint8(d.Kind), uint8(lastKind))
	}
	d.Attempt = r.uint32()
	d.line(r)
	d.Seq = r.uvarint()
	d.Ack = r.uvarint()
	d.Term = r.uvarint()
}

func (d *decoder) line(r *reader) {
	switch v := r.byte(); v {
	case noLine:
	case sessionLine:
		d.Line.Session = session.ID(r.uvarint())
		d.Line.Generation = r.uvarint()
		if d.Line.Session == 0 {
			r.fail("line of session 0")
		}
	case serverLine:
		d.Line.Server = d.server(r)
		d.Line.Boot = r.uvarint()
		if d.Line.Server == "" {
			r.fail("line of a server without a name")
		}
	default:
		r.fail("unknown line %d", v)
	}
}

// server reads a server's name, reusing the string of the last time.
func (d *decoder) server(r *reader) string {
	s := r.known(d.servers[0], d.servers[1])
	if s != d.servers[0] && s != d.servers[1] && len(s) <= MaxNameBytes {
		d.servers[1], d.servers[0] = d.servers[0], s
	}
	return s
}

func (d *decoder) body(r *reader) {
	switch d.Kind {
	case CmdNewEpoch:
		d.Epoch = &NewEpoch{Term: r.uvarint(), Clock: r.varint(), MinEpoch: uint32(r.narrow(math.MaxUint32)), ClusterID: r.string()}
	case CmdBoot:
		d.Boot = &Boot{Server: r.string(), Nonce: r.uvarint()}
	case CmdOpen:
		d.Open = d.open(r)
	case CmdAttach:
		d.Attach = d.attach(r)
	case CmdWrite:
		d.decodeWrite(r)
	case CmdSkip:
		d.Code = Code(uint32(r.narrow(math.MaxUint32)))
	case CmdIdentities:
		d.Identities = identities(r)
	case CmdExpire, CmdUnsuspect:
		d.Expire = expire(r)
	case CmdSuspect:
		d.Expire = expire(r)
		d.Expire.Silent = time.Duration(r.varint())
	case CmdReap:
		d.Reap = reaps(r)
	case CmdTrim:
		d.Trim = trims(r)
	case CmdKill:
		d.Kill = &Kill{Session: session.ID(r.uvarint()), Reason: session.EndReason(r.byte())}
	case CmdFeature:
		d.Feature = uint32(r.narrow(math.MaxUint32))
	case CmdRemoveServer:
		d.Server = r.string()
	case CmdRestoreBegin:
		d.Begin = restoreBegin(r)
	case CmdRestoreChunk:
		d.Chunk = restoreChunk(r)
	case CmdRestoreCommit:
		d.Commit = restoreCommit(r)
	case CmdClose: // has no body
	}
}

func (d *decoder) open(r *reader) *Open {
	o := &Open{}
	r.fixed(o.Nonce[:])
	r.fixed(o.Secret[:])
	o.Protocol = session.Protocol(r.byte())
	o.Timeout = time.Duration(r.varint())
	o.Name = r.string()
	o.Identity = r.string()
	o.Expect = session.ID(r.uvarint())
	o.Server, o.Boot, o.Address, o.Identities = d.place(r)
	return o
}

func (d *decoder) attach(r *reader) *Attach {
	a := &Attach{Session: session.ID(r.uvarint())}
	r.fixed(a.Secret[:])
	r.fixed(a.Nonce[:])
	a.Protocol = session.Protocol(r.byte())
	a.Connection = r.uvarint()
	a.Expect = r.uvarint()
	a.Timeout = time.Duration(r.varint())
	a.Server, a.Boot, a.Address, a.Identities = d.place(r)
	return a
}

func (d *decoder) place(r *reader) (server string, boot uint64, address string, ids []session.Identity) {
	server = d.server(r)
	boot = r.uvarint()
	address = r.string()
	return server, boot, address, identities(r)
}

// identities returns nil for none.
func identities(r *reader) []session.Identity {
	n := r.count(2)
	if n == 0 {
		return nil
	}
	ids := make([]session.Identity, n)
	for i := range ids {
		ids[i] = session.Identity{Scheme: r.known("digest", "ip", "x509", "super"), ID: r.string()}
	}
	return ids
}

func expire(r *reader) *Expire {
	return &Expire{Session: session.ID(r.uvarint()), Generation: r.uvarint(), Touched: r.uvarint(), Term: r.uvarint()}
}

func reaps(r *reader) []znode.Reap {
	n := r.count(3)
	if n == 0 {
		return nil
	}
	rs := make([]znode.Reap, n)
	for i := range rs {
		rs[i] = znode.Reap{Path: r.string(), Mzxid: zxid.ID(r.uvarint()), Pzxid: zxid.ID(r.uvarint())}
	}
	return rs
}

func trims(r *reader) []Trim {
	n := r.count(2)
	if n == 0 {
		return nil
	}
	ts := make([]Trim, n)
	for i := range ts {
		ts[i] = Trim{Session: session.ID(r.uvarint()), Upto: r.uvarint()}
	}
	return ts
}
