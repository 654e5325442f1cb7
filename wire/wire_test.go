package wire_test

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var anyone = []znode.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}

// recorded are messages that were exchanged with Apache ZooKeeper 3.8.0, without
// the length in front.
var recordedRequests = []struct {
	name, bytes string
	header      wire.Header
	request     wire.Request
}{
	{
		"create", "00000001 00000001 00000002 2f77 00000002 6869 00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000000",
		wire.Header{Xid: 1, Type: wire.Create},
		wire.Request{Op: wire.Op{Path: "/w", Data: []byte("hi"), ACL: anyone}},
	},
	{
		"exists", "00000002 00000003 00000004 2f772f78 01",
		wire.Header{Xid: 2, Type: wire.Exists},
		wire.Request{Op: wire.Op{Path: "/w/x", Watch: true}},
	},
	{
		"setData", "00000004 00000005 00000002 2f77 00000001 76 00000000",
		wire.Header{Xid: 4, Type: wire.SetData},
		wire.Request{Op: wire.Op{Path: "/w", Data: []byte("v")}},
	},
	{"ping", "fffffffe 0000000b", wire.Header{Xid: wire.XidPing, Type: wire.Ping}, wire.Request{}},
	{
		"auth", "fffffffc 00000064 00000000 00000006 646967657374 00000003 753a70",
		wire.Header{Xid: wire.XidAuth, Type: wire.Auth},
		wire.Request{Scheme: "digest", Secret: []byte("u:p")},
	},
	{
		"multi", "00000008 0000000e 0000000d 00 ffffffff 00000002 2f77 00000001 00000002 00 ffffffff 00000008 2f772f6e6f6e6532 ffffffff ffffffff 01 ffffffff",
		wire.Header{Xid: 8, Type: wire.Multi},
		wire.Request{Ops: []wire.Op{{Type: wire.Check, Path: "/w", Version: 1}, {Type: wire.Delete, Path: "/w/none2", Version: -1}}},
	},
	{
		"setWatches", "fffffff8 00000065 00000003000ac3fa 00000001 00000002 2f77 00000000 00000000",
		wire.Header{Xid: wire.XidSetWatches, Type: wire.SetWatches},
		wire.Request{Since: 0x3000ac3fa, Watches: [5][]string{{"/w"}, {}, {}}},
	},
	{
		"addWatch", "0000000a 0000006a 00000002 2f77 00000001",
		wire.Header{Xid: 10, Type: wire.AddWatch},
		wire.Request{Op: wire.Op{Path: "/w"}, Mode: wire.AddPersistentRecursive},
	},
	{"closeSession", "0000000f fffffff5", wire.Header{Xid: 15, Type: wire.CloseSession}, wire.Request{}},
}

func TestRequestsAreThoseOfZooKeeper(t *testing.T) {
	for _, c := range recordedRequests {
		frame := unhex(t, c.bytes)
		h, record, err := wire.DecodeHeader(frame)
		if err != nil || h != c.header {
			t.Errorf("%s: header %+v, %v", c.name, h, err)
		}
		c.request.Type = h.Type
		var q wire.Request
		if err := q.Decode(h.Type, record); err != nil || !reflect.DeepEqual(q, c.request) {
			t.Errorf("%s: %+v, %v\nwant %+v", c.name, q, err, c.request)
		}
		if got := q.Append(h.Append(nil)); !bytes.Equal(got, frame) {
			t.Errorf("%s: encoded as %x\nwant %x", c.name, got, frame)
		}
	}
}

func TestHandshakeIsThatOfZooKeeper(t *testing.T) {
	frame := unhex(t, "00000000 0000000000000000 00002710 0000000000000000 00000010 00000000000000000000000000000000 00")
	var q wire.ConnectRequest
	if err := q.Decode(frame); err != nil || q.Timeout != 10*time.Second || len(q.Password) != 16 || !q.HasReadOnly || q.ReadOnly {
		t.Errorf("%+v, %v", q, err)
	}
	if got := q.Append(nil); len(frame) != 45 || !bytes.Equal(got, frame) {
		t.Errorf("encoded as %x", got)
	}
	if err := q.Decode(frame[:44]); err != nil || q.HasReadOnly {
		t.Errorf("without the byte: %+v, %v", q, err)
	}
	answer := unhex(t, "00000000 00002710 010000175a4b02d8 00000010 0b54639ee60ced3beb572f1fbeaad7b4 00")
	var p wire.ConnectResponse
	if err := p.Decode(answer); err != nil || p.Session != 0x010000175a4b02d8 || p.Timeout != 10*time.Second || !p.HasReadOnly {
		t.Errorf("%+v, %v", p, err)
	}
	if got := p.Append(nil); len(answer) != 37 || !bytes.Equal(got, answer) {
		t.Errorf("encoded as %x", got)
	}
	if got := wire.Expired(false).Append(nil); !bytes.Equal(got, unhex(t, "00000000 00000000 0000000000000000 00000010 00000000000000000000000000000000")) {
		t.Errorf("expired: %x", got)
	}
}

func TestRepliesAreThoseOfZooKeeper(t *testing.T) {
	stat := znode.Stat{Czxid: 0x3000ac3f5, Mzxid: 0x3000ac3f6, Pzxid: 0x3000ac3f5, Ctime: 0x1a22be6ab19, Mtime: 0x1a22be6ab1b, Version: 1, DataLength: 1}
	const statBytes = "00000003000ac3f5 00000003000ac3f6 000001a22be6ab19 000001a22be6ab1b 00000001 00000000 00000000 0000000000000000 00000001 00000000 00000003000ac3f5"
	for _, c := range []struct {
		name, bytes string
		header      wire.ReplyHeader
		t           wire.Type
		reply       wire.Reply
	}{
		{"create", "00000001 00000003000ac3f5 00000000 00000002 2f77", wire.ReplyHeader{Xid: 1, Zxid: 0x3000ac3f5}, wire.Create, wire.Reply{Path: "/w"}},
		{"exists, no node", "00000002 00000003000ac3f5 ffffff9b", wire.ReplyHeader{Xid: 2, Zxid: 0x3000ac3f5, Err: wire.NoNode}, wire.Ping, wire.Reply{}},
		{"setData", "00000004 00000003000ac3f6 00000000" + statBytes, wire.ReplyHeader{Xid: 4, Zxid: 0x3000ac3f6}, wire.SetData, wire.Reply{Stat: stat}},
		{
			"multi that failed", "00000008 00000003000ac3f9 00000000 ffffffff 00 00000000 00000000 ffffffff 00 ffffff9b ffffff9b ffffffff 01 ffffffff",
			wire.ReplyHeader{Xid: 8, Zxid: 0x3000ac3f9},
			wire.Multi,
			wire.Reply{Results: []wire.Result{{}, {Err: wire.NoNode}}},
		},
		{
			"multi", "00000009 00000003000ac3fa 00000000 00000001 00 00000000 00000004 2f772f6d 00000002 00 00000000 ffffffff 01 ffffffff",
			wire.ReplyHeader{Xid: 9, Zxid: 0x3000ac3fa},
			wire.Multi,
			wire.Reply{Results: []wire.Result{{Type: wire.Create, Reply: wire.Reply{Path: "/w/m"}}, {Type: wire.Delete}}},
		},
		{"addWatch", "0000000a 00000003000ac3fa 00000000 00000000", wire.ReplyHeader{Xid: 10, Zxid: 0x3000ac3fa}, wire.AddWatch, wire.Reply{}},
	} {
		frame := unhex(t, c.bytes)
		h, record, err := wire.DecodeReplyHeader(frame)
		if err != nil || h != c.header {
			t.Errorf("%s: header %+v, %v", c.name, h, err)
		}
		var p wire.Reply
		if err := p.Decode(c.t, record); err != nil || !reflect.DeepEqual(p, c.reply) {
			t.Errorf("%s: %+v, %v\nwant %+v", c.name, p, err, c.reply)
		}
		if got := p.Append(h.Append(nil), c.t); !bytes.Equal(got, frame) {
			t.Errorf("%s: encoded as %x\nwant %x", c.name, got, frame)
		}
	}
}

func TestEventsAreThoseOfZooKeeper(t *testing.T) {
	frame := unhex(t, "0000001e ffffffff ffffffffffffffff 00000000 00000003 00000003 00000002 2f77")
	e := wire.Event{Type: wire.EventChanged, Path: "/w"}
	if got := wire.EndFrame(wire.AppendEvent(wire.BeginFrame(nil), e), 0); !bytes.Equal(got, frame) {
		t.Errorf("%x\nwant %x", got, frame)
	}
	h, record, err := wire.DecodeReplyHeader(frame[4:])
	if err != nil || h.Xid != wire.XidEvent {
		t.Errorf("%+v, %v", h, err)
	}
	if got, err := wire.DecodeEvent(record); err != nil || got != e {
		t.Errorf("%+v, %v", got, err)
	}
	if got := wire.AppendUnknown(nil, 7); !bytes.Equal(got, unhex(t, "00000007 ffffffffffffffff fffffffa")) {
		t.Errorf("unknown operation: %x", got)
	}
}

func TestCreatesInAMultiAreAnsweredAsCreate2(t *testing.T) {
	for _, c := range []struct{ asked, answered wire.Type }{
		{wire.Create, wire.Create}, {wire.Create2, wire.Create2}, {wire.CreateContainer, wire.Create2}, {wire.CreateTTL, wire.Create2},
	} {
		in := wire.Reply{Results: []wire.Result{{Type: c.asked, Reply: wire.Reply{Path: "/a"}}}}
		var out wire.Reply
		if err := out.Decode(wire.Multi, in.Append(nil, wire.Multi)); err != nil || out.Results[0].Type != c.answered {
			t.Errorf("%s: %+v, %v", c.asked, out, err)
		}
	}
}

// Null and empty are two things.
func TestNullAndEmptyDiffer(t *testing.T) {
	for _, data := range [][]byte{nil, {}} {
		q := wire.Request{Op: wire.Op{Type: wire.SetData, Path: "/", Data: data}}
		var got wire.Request
		if err := got.Decode(q.Type, q.Append(nil)); err != nil || (got.Data == nil) != (data == nil) {
			t.Errorf("%#v: %#v, %v", data, got.Data, err)
		}
	}
	for _, c := range []struct {
		name, acl string
		null      bool
	}{
		{"null list", "ffffffff", true},
		{"empty list", "00000000", false},
		{"null scheme", "00000001 0000001f ffffffff 00000000", true},
		{"null id", "00000001 0000001f 00000000 ffffffff", true},
	} {
		var q wire.Request
		if err := q.Decode(wire.SetACL, unhex(t, "00000001 2f"+c.acl+"ffffffff")); err != nil || q.ACLNull != c.null || q.Version != -1 {
			t.Errorf("%s: %+v, %v", c.name, q, err)
		}
	}
	if err := new(wire.Request).Decode(wire.Delete, unhex(t, "ffffffff 00000000")); err == nil {
		t.Error("a null path was taken")
	}
	var q wire.Request
	if err := q.Decode(wire.GetEphemerals, unhex(t, "ffffffff")); err != nil || q.Path != "" {
		t.Errorf("getEphemerals of all: %+v, %v", q, err)
	}
}

func TestTimeToLiveOutOfRangeStaysOutOfRange(t *testing.T) {
	for _, ms := range []int64{-1 << 63, -1, 1<<63 - 1, 0xffffffffff + 1} {
		q := wire.Request{Op: wire.Op{Type: wire.CreateTTL, Path: "/a"}}
		b := q.Append(nil)
		b = append(b[:len(b)-8], byte(ms>>56), byte(ms>>48), byte(ms>>40), byte(ms>>32), byte(ms>>24), byte(ms>>16), byte(ms>>8), byte(ms))
		if err := q.Decode(wire.CreateTTL, b); err != nil {
			t.Fatal(err)
		}
		if most := 0xffffffffff * time.Millisecond; q.TTL > 0 != (ms > 0) || q.TTL > 0 && q.TTL <= most {
			t.Errorf("%d ms became %s", ms, q.TTL)
		}
	}
}

func TestWhatAMultiMustNotHold(t *testing.T) {
	for _, outer := range []wire.Type{wire.Multi, wire.MultiRead} {
		for inner := wire.Type(-20); inner < 120; inner++ {
			q := wire.Request{Op: wire.Op{Type: outer}, Ops: []wire.Op{{Type: inner, Path: "/a"}}}
			err := new(wire.Request).Decode(outer, q.Append(nil))
			write := inner == wire.Create || inner == wire.Create2 || inner == wire.CreateContainer || inner == wire.CreateTTL ||
				inner == wire.Delete || inner == wire.SetData || inner == wire.Check
			read := inner == wire.GetData || inner == wire.GetChildren
			if want := outer == wire.Multi && write || outer == wire.MultiRead && read; (err == nil) != want {
				t.Errorf("%s holds %s: %v", outer, inner, err)
			}
		}
	}
	var q wire.Request
	if err := q.Decode(wire.Multi, unhex(t, "ffffffff 01 ffffffff")); err != nil || len(q.Ops) != 0 {
		t.Errorf("empty: %+v, %v", q, err)
	}
}

// Every record that is cut short is refused, whatever the operation, and bytes
// behind its end do not matter.
func TestRecordsCutShortAreRefused(t *testing.T) {
	for _, c := range allRequests() {
		whole := c.Append(nil)
		for n := range len(whole) {
			if c.Type == wire.Ping || c.Type == wire.WhoAmI || c.Type == wire.CloseSession {
				continue
			}
			if err := new(wire.Request).Decode(c.Type, whole[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes were enough", c.Type, n, len(whole))
			}
		}
		var q wire.Request
		if err := q.Decode(c.Type, append(whole, 1, 2, 3)); err != nil || !reflect.DeepEqual(q, c) {
			t.Errorf("%s: %+v, %v\nwant %+v", c.Type, q, err, c)
		}
	}
}

// allRequests has one of each operation, with every field that it has.
func allRequests() (all []wire.Request) {
	for t := wire.Type(-20); t < 120; t++ {
		if !t.Known() && t != wire.Check {
			continue
		}
		q := wire.Request{Op: wire.Op{Type: t}}
		switch t {
		case wire.Ping, wire.WhoAmI, wire.CloseSession:
		case wire.Auth:
			q.Scheme, q.Secret = "digest", []byte("u:p")
		case wire.SASL:
			q.Secret = []byte{1}
		case wire.Multi:
			q.Ops = []wire.Op{{Type: wire.Create2, Path: "/a", Data: []byte{}, ACL: anyone, Flags: 3}, {Type: wire.CreateTTL, Path: "/b", ACL: anyone, TTL: time.Second}}
		case wire.MultiRead:
			q.Ops = []wire.Op{{Type: wire.GetData, Path: "/a", Watch: true}, {Type: wire.GetChildren, Path: "/b"}}
		case wire.Reconfig:
			q.Joining, q.Leaving, q.Members, q.ConfigID = "a", "b", "c", 1<<40
		case wire.SetWatches, wire.SetWatches2:
			q.Since = 1 << 33
			q.Watches = [5][]string{{"/a"}, {"/b", "/c"}, {}}
			if t == wire.SetWatches2 {
				q.Watches[3], q.Watches[4] = []string{"/d"}, []string{}
			}
		default:
			q.Path = "/some/path"
		}
		switch t {
		case wire.Create, wire.Create2, wire.CreateContainer, wire.CreateTTL:
			q.Data, q.ACL, q.Flags = []byte("data"), anyone, 2
			if t == wire.CreateTTL {
				q.TTL = time.Minute
			}
		case wire.SetACL:
			q.ACL, q.Version = anyone, 7
		case wire.SetData:
			q.Data, q.Version = []byte("data"), 7
		case wire.Delete, wire.Check:
			q.Version = -1
		case wire.Exists, wire.GetData, wire.GetChildren, wire.GetChildren2:
			q.Watch = true
		case wire.AddWatch, wire.RemoveWatches, wire.CheckWatches:
			q.Mode = 1
		default:
		}
		all = append(all, q)
	}
	return all
}

func allReplies() map[wire.Type]wire.Reply {
	stat := znode.Stat{Czxid: 1 << 40, Mzxid: 2, Pzxid: 3, Ctime: 4, Mtime: 5, Version: 6, Cversion: -1, Aversion: 8, EphemeralOwner: 9, DataLength: 10, NumChildren: 11, Kind: znode.Ephemeral}
	return map[wire.Type]wire.Reply{
		wire.Create: {Path: "/a"}, wire.Sync: {Path: ""}, wire.Create2: {Path: "/a", Stat: stat}, wire.CreateContainer: {Path: "/a", Stat: stat},
		wire.CreateTTL: {Path: "/a", Stat: stat}, wire.Exists: {Stat: stat}, wire.SetData: {Stat: stat}, wire.SetACL: {Stat: stat},
		wire.GetData: {Data: []byte{}, Stat: stat}, wire.Reconfig: {Data: nil, Stat: stat}, wire.GetACL: {ACL: anyone, Stat: stat},
		wire.GetChildren: {Names: []string{"a", "b"}}, wire.GetEphemerals: {Names: []string{}}, wire.GetChildren2: {Names: []string{"ä"}, Stat: stat},
		wire.GetAllChildrenNumber: {Number: 3}, wire.AddWatch: {}, wire.SASL: {Data: []byte("token")},
		wire.WhoAmI: {Clients: []wire.ClientInfo{{Scheme: "ip", User: "127.0.0.1"}, {Scheme: "digest", User: "u"}}},
		wire.Multi: {Results: []wire.Result{
			{Type: wire.Create2, Reply: wire.Reply{Path: "/a", Stat: stat}},
			{Type: wire.SetData, Reply: wire.Reply{Stat: stat}},
			{Type: wire.Check},
			{Err: wire.NoNode},
			{},
			{Err: wire.RuntimeInconsistency},
		}},
		wire.MultiRead: {Results: []wire.Result{{Type: wire.GetData, Reply: wire.Reply{Data: []byte("x"), Stat: stat}}, {Type: wire.GetChildren, Reply: wire.Reply{Names: []string{"a"}}}}},
		wire.Delete:    {}, wire.Ping: {}, wire.Auth: {}, wire.SetWatches: {}, wire.CloseSession: {},
	}
}

func TestDecodedReplyIsTheEncodedOne(t *testing.T) {
	for typ, want := range allReplies() {
		b := want.Append(nil, typ)
		var got wire.Reply
		if err := got.Decode(typ, b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v\nwant %+v", typ, got, err, want)
		}
		for n := range len(b) {
			if err := new(wire.Reply).Decode(typ, b[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes were enough", typ, n, len(b))
			}
		}
	}
}

// What was decoded does not change when the buffer is used again.
func TestDecodedIsACopy(t *testing.T) {
	for _, want := range allRequests() {
		b := want.Append(nil)
		var q wire.Request
		if err := q.Decode(want.Type, b); err != nil {
			t.Fatal(err)
		}
		clear(b)
		if !reflect.DeepEqual(q, want) {
			t.Errorf("%s has changed", want.Type)
		}
	}
}

// A few bytes that promise a lot cost no memory.
func TestLyingLengthsCostNothing(t *testing.T) {
	huge := "7fffffff"
	for name, c := range map[string]struct {
		t wire.Type
		b string
	}{
		"data":  {wire.SetData, "00000001 2f" + huge},
		"acl":   {wire.SetACL, "00000001 2f" + huge},
		"paths": {wire.SetWatches, "0000000000000000" + huge},
		"path":  {wire.Delete, huge},
		"neg":   {wire.SetData, "00000001 2f fffffffe"},
	} {
		record := unhex(t, c.b)
		var q wire.Request
		if err := q.Decode(c.t, record); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if n := testing.AllocsPerRun(10, func() { _ = q.Decode(c.t, record) }); n > 2 {
			t.Errorf("%s: %.0f allocations", name, n)
		}
	}
	for typ, b := range map[wire.Type]string{wire.GetChildren: huge, wire.WhoAmI: huge, wire.GetACL: huge} {
		if err := new(wire.Reply).Decode(typ, unhex(t, b)); err == nil {
			t.Errorf("%s: accepted", typ)
		}
	}
}

// Lists of paths cost what they hold, and no more than a small multiple of the
// frame.
func TestMemoryIsBoundByTheFrame(t *testing.T) {
	record := bytes.Repeat([]byte{0, 0, 0, 13, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0}, wire.MaxFrameBytes/17) // empty checks
	record = append(record, 255, 255, 255, 255, 1, 255, 255, 255, 255)
	var q wire.Request
	if err := q.Decode(wire.Multi, record); err != nil {
		t.Fatal(err)
	}
	if n := cap(q.Ops) * int(reflect.TypeFor[wire.Op]().Size()); n > 16*len(record) {
		t.Errorf("%d operations of %d bytes take %d bytes", len(q.Ops), len(record), n)
	}
}

func TestStatIsCutAsZooKeepersCountersWrap(t *testing.T) {
	s := znode.Stat{Version: 1<<31 + 5, Aversion: 1<<32 + 1}
	var p wire.Reply
	if err := p.Decode(wire.Exists, wire.AppendStat(nil, &s)); err != nil || p.Stat.Version != -1<<31+5 || p.Stat.Aversion != 1 {
		t.Errorf("%+v, %v", p.Stat, err)
	}
	if n := len(wire.AppendStat(nil, &s)); n != wire.StatBytes {
		t.Errorf("%d bytes", n)
	}
}

func TestNamesForPeople(t *testing.T) {
	for want, got := range map[string]string{
		"create2": wire.Create2.String(), "operation 99": wire.Type(99).String(), "no node": wire.NoNode.Error(), "error -9": wire.Code(-9).String(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if wire.Check.Known() || wire.Type(99).Known() || !wire.CloseSession.Known() {
		t.Error("what a client may send")
	}
}

func FuzzRequest(f *testing.F) {
	for _, q := range allRequests() {
		f.Add(int32(q.Type), q.Append(nil))
	}
	f.Fuzz(func(t *testing.T, typ int32, record []byte) {
		var q wire.Request
		if q.Decode(wire.Type(typ), record) != nil || q.ACLNull {
			return
		}
		for _, op := range q.Ops {
			if op.ACLNull {
				return
			}
		}
		var again wire.Request
		if err := again.Decode(q.Type, q.Append(nil)); err != nil || !sameRequest(q, again) {
			t.Errorf("%+v\nbecame %+v, %v", q, again, err)
		}
	})
}

// sameRequest takes null lists of paths for empty ones, and times that were cut
// for equal.
func sameRequest(a, b wire.Request) bool {
	for _, q := range []*wire.Request{&a, &b} {
		for i := range q.Watches {
			if len(q.Watches[i]) == 0 {
				q.Watches[i] = nil
			}
		}
		if q.Secret == nil {
			q.Secret = []byte{}
		}
		q.TTL = q.TTL.Truncate(time.Millisecond)
		for i := range q.Ops {
			q.Ops[i].TTL = q.Ops[i].TTL.Truncate(time.Millisecond)
		}
	}
	return reflect.DeepEqual(a, b)
}

func FuzzReply(f *testing.F) {
	for typ, p := range allReplies() {
		f.Add(int32(typ), p.Append(nil, typ))
	}
	f.Fuzz(func(t *testing.T, typ int32, record []byte) {
		var p wire.Reply
		if p.Decode(wire.Type(typ), record) != nil {
			return
		}
		var again wire.Reply
		if err := again.Decode(wire.Type(typ), p.Append(nil, wire.Type(typ))); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
		_, _ = wire.DecodeEvent(record)
	})
}

func FuzzConnect(f *testing.F) {
	f.Add((&wire.ConnectRequest{Timeout: 10 * time.Second, Password: make([]byte, 16), HasReadOnly: true}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var q, again wire.ConnectRequest
		if q.Decode(b) != nil {
			return
		}
		if err := again.Decode(q.Append(nil)); err != nil || !reflect.DeepEqual(q, again) {
			t.Errorf("%+v\nbecame %+v, %v", q, again, err)
		}
		_ = new(wire.ConnectResponse).Decode(b)
	})
}

func BenchmarkDecodeSet(b *testing.B) {
	q := wire.Request{Op: wire.Op{Type: wire.SetData, Path: "/bench/node-0000000017", Data: make([]byte, 100), Version: -1}}
	record := q.Append(nil)
	b.ReportAllocs()
	for b.Loop() {
		if err := q.Decode(wire.SetData, record); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendGetReply(b *testing.B) {
	p := wire.Reply{Data: make([]byte, 100), Stat: znode.Stat{Czxid: zxid.Make(1, 1)}}
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = wire.BeginFrame(dst[:0])
		dst = wire.EndFrame(p.Append(wire.ReplyHeader{Xid: 1, Zxid: 2}.Append(dst), wire.GetData), 0)
	}
}
