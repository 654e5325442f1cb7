package fsm

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// resultVersion is the form of a remembered result in a snapshot.
const resultVersion = 1

// appendResult appends what a remembered result must give back later: all but
// the line, number, attempt and status, which a repeat brings along itself.
func appendResult(dst []byte, r *Result) []byte {
	dst = append(dst, resultVersion, byte(r.Kind))
	dst = binary.AppendUvarint(dst, uint64(r.Zxid))
	dst = binary.AppendVarint(dst, r.ValidUntil)
	dst = appendBool(dst, r.Deduplicated)
	dst = appendError(dst, r.Err)
	dst = binary.AppendUvarint(dst, uint64(len(r.Ops)))
	for i := range r.Ops {
		dst = appendOpResult(dst, &r.Ops[i])
	}
	dst = appendBool(dst, r.Session != nil)
	if r.Session != nil {
		dst = appendSessionInfo(dst, r.Session)
	}
	return dst
}

// decodeResult is the inverse of appendResult. It keeps nothing of b.
func decodeResult(b []byte) (*Result, error) {
	r := reader{b: b}
	if v := r.byte(); r.err == nil && v != resultVersion {
		r.fail("remembered result of format version %d, this server knows %d", v, resultVersion)
	}
	res := &Result{Kind: Kind(r.byte()), Zxid: zxid.ID(r.uvarint()), ValidUntil: r.varint(), Deduplicated: r.bool()}
	if r.err == nil && !res.Kind.known() {
		r.fail("result of unknown kind %d", res.Kind)
	}
	res.Err = decodeError(&r)
	if n := r.count(minOpResultBytes); n > 0 {
		res.Ops = make([]znode.OpResult, n)
		for i := range res.Ops {
			decodeOpResult(&r, &res.Ops[i])
		}
	}
	if r.bool() {
		res.Session = decodeSessionInfo(&r)
	}
	return res, r.done()
}

func appendValue(dst []byte, v session.Value) []byte { return appendResult(dst, v.(*Result)) }

func decodeValue(b []byte) (session.Value, error) {
	r, err := decodeResult(b)
	if err != nil {
		return nil, err // not a typed nil in the interface
	}
	return r, nil
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendSessionInfo(dst []byte, s *SessionInfo) []byte {
	dst = binary.AppendUvarint(dst, uint64(s.ID))
	dst = append(dst, s.Secret[:]...)
	dst = binary.AppendVarint(dst, int64(s.Timeout))
	dst = binary.AppendUvarint(dst, s.Generation)
	dst = binary.AppendUvarint(dst, s.Next)
	return appendBool(dst, s.Elsewhere)
}

func decodeSessionInfo(r *reader) *SessionInfo {
	s := &SessionInfo{ID: session.ID(r.uvarint())}
	r.fixed(s.Secret[:])
	s.Timeout = time.Duration(r.varint())
	s.Generation = r.uvarint()
	s.Next = r.uvarint()
	s.Elsewhere = r.bool()
	return s
}

// minOpResultBytes: kind, empty path, no error, no stat.
const minOpResultBytes = 4

func appendOpResult(dst []byte, o *znode.OpResult) []byte {
	dst = append(dst, byte(o.Kind))
	dst = appendString(dst, o.Path)
	dst = appendError(dst, o.Err)
	has := o.Stat != znode.Stat{}
	dst = appendBool(dst, has)
	if has {
		dst = appendStat(dst, &o.Stat)
	}
	return dst
}

func decodeOpResult(r *reader, o *znode.OpResult) {
	o.Kind = znode.OpKind(r.byte())
	o.Path = r.string()
	o.Err = decodeError(r)
	if r.bool() {
		decodeStat(r, &o.Stat)
		r.useful(o.Stat != znode.Stat{})
	}
}

func appendStat(dst []byte, s *znode.Stat) []byte {
	dst = append(dst, byte(s.Kind))
	for _, z := range [...]uint64{uint64(s.Czxid), uint64(s.Mzxid), uint64(s.Pzxid), uint64(s.EphemeralOwner)} {
		dst = binary.AppendUvarint(dst, z)
	}
	for _, v := range [...]int64{
		s.Ctime, s.Mtime, s.Version, s.Cversion, s.Aversion,
		int64(s.DataLength), int64(s.NumChildren), int64(s.TTL), int64(s.Linger),
	} {
		dst = binary.AppendVarint(dst, v)
	}
	return dst
}

func decodeStat(r *reader, s *znode.Stat) {
	s.Kind = znode.Kind(r.byte())
	s.Czxid, s.Mzxid, s.Pzxid = zxid.ID(r.uvarint()), zxid.ID(r.uvarint()), zxid.ID(r.uvarint())
	s.EphemeralOwner = session.ID(r.uvarint())
	s.Ctime, s.Mtime = r.varint(), r.varint()
	s.Version, s.Cversion, s.Aversion = r.varint(), r.varint(), r.varint()
	s.DataLength, s.NumChildren = r.int32(), r.int32()
	s.TTL, s.Linger = time.Duration(r.varint()), time.Duration(r.varint())
}

func (r *reader) int32() int32 {
	v := r.varint()
	if int64(int32(v)) != v {
		r.fail("%d is no 32-bit number", v)
		return 0
	}
	return int32(v)
}

// How an error is written.
const (
	errNone byte = iota
	errPlain
	errVersion
	errMulti
	errIdentity
)

// appendError writes an error so that the repeat of a refusal says the same, in
// the same words, on a server that got the state as a snapshot.
func appendError(dst []byte, err error) []byte {
	var version *znode.VersionError
	var multi *znode.MultiError
	var identity *session.IdentityError
	switch {
	case err == nil:
		return append(dst, errNone)
	case errors.As(err, &multi):
		dst = append(dst, errMulti)
		dst = binary.AppendUvarint(dst, uint64(multi.Index))
		return appendError(dst, multi.Err)
	case errors.As(err, &version):
		dst = append(dst, errVersion)
		dst = appendString(dst, version.Path)
		dst = binary.AppendVarint(dst, version.Have)
		dst = binary.AppendVarint(dst, version.Want)
		return appendString(dst, version.What)
	case errors.As(err, &identity):
		dst = append(dst, errIdentity)
		dst = appendString(dst, identity.Identity)
		return binary.AppendUvarint(dst, uint64(identity.Current))
	}
	code := CodeOf(err)
	dst = append(dst, errPlain)
	dst = binary.AppendUvarint(dst, uint64(uint32(code)))
	if code.Err() == err { //nolint:errorlint // the bare sentinel needs no text
		return appendString(dst, "")
	}
	return appendString(dst, err.Error())
}

func decodeError(r *reader) error {
	switch tag := r.byte(); tag {
	case errNone:
		return nil
	case errMulti:
		e := &znode.MultiError{Index: int(r.narrow(MaxOps))}
		if len(r.b) > 0 && r.b[0] == errMulti {
			r.fail("a multi in a multi")
		}
		e.Err = decodeError(r)
		return e
	case errVersion:
		return &znode.VersionError{Path: r.string(), Have: r.varint(), Want: r.varint(), What: r.known("version", "czxid", "owner")}
	case errIdentity:
		return &session.IdentityError{Identity: r.string(), Current: session.ID(r.uvarint())}
	case errPlain:
		return decodePlainError(r)
	default:
		r.fail("unknown error form %d", tag)
		return nil
	}
}

func decodePlainError(r *reader) error {
	code := Code(uint32(r.narrow(1<<31 - 1)))
	text := r.string()
	if code == CodeOK || !code.known() {
		r.fail("error of unknown code %d", code)
		return nil
	}
	if text == "" || text == code.Err().Error() {
		return code.Err()
	}
	return &pastError{code: code, text: text}
}

// pastError is an error read from a snapshot: the words of then, matching the
// sentinel of its code.
type pastError struct {
	code Code
	text string
}

func (e *pastError) Error() string { return e.text }

func (e *pastError) Unwrap() error { return e.code.Err() }

// errorDigest tells errors apart by what they mean, not by their words.
func errorDigest(h hash, err error) hash {
	if err == nil {
		return h.uint64(0)
	}
	return h.uint64(uint64(uint32(CodeOf(err))))
}

// Digest implements session.Digester: replicas that remember different answers
// have different digests.
func (r *Result) Digest() uint64 {
	h := hash(0).uint64(uint64(r.Kind)).uint64(uint64(r.Zxid)).uint64(uint64(r.ValidUntil)).bool(r.Deduplicated)
	h = errorDigest(h, r.Err).uint64(uint64(len(r.Ops)))
	for i := range r.Ops {
		o := &r.Ops[i]
		h = errorDigest(h.uint64(uint64(o.Kind)).string(o.Path), o.Err)
		h = statDigest(h, &o.Stat)
	}
	if s := r.Session; s != nil {
		h = h.uint64(uint64(s.ID)).string(string(s.Secret[:])).uint64(uint64(s.Timeout))
		h = h.uint64(s.Generation).uint64(s.Next).bool(s.Elsewhere)
	}
	return uint64(h)
}

// statDigest adds what identifies a Stat: within one history two Stats of a
// znode that agree in these agree in all.
func statDigest(h hash, s *znode.Stat) hash {
	h = h.uint64(uint64(s.Czxid)).uint64(uint64(s.Mzxid)).uint64(uint64(s.Pzxid))
	h = h.uint64(uint64(s.Mtime)).uint64(uint64(s.Version)).uint64(uint64(s.Cversion)).uint64(uint64(s.Aversion))
	return h.uint64(uint64(uint32(s.DataLength))<<32 | uint64(uint32(s.NumChildren)))
}
