package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// sampleCommands has one of each kind, with every field set somewhere.
func sampleCommands() []*Command {
	onSession := LineRef{Session: 0x700000001, Generation: 3}
	onServer := LineRef{Server: testServer, Boot: 1 << 63}
	ids := []session.Identity{{Scheme: "digest", ID: "u:h"}, {Scheme: "ip", ID: "10.0.0.1"}}
	open := openOf(1)
	open.Protocol, open.Identity, open.Expect, open.Identities = session.ZooKeeper, "w-1", 77, ids
	ops := []znode.Op{
		{Kind: znode.OpCreate, Path: "/a", Data: []byte{}, ACL: znode.OpenACL, Node: znode.TTL, TTL: time.Minute, Sequential: true},
		{Kind: znode.OpCreate, Path: "/b", ACL: []znode.ACL{{Perms: 31, Scheme: "digest", ID: "u:h"}, {Perms: 1, Scheme: "odd", ID: ""}}},
		{Kind: znode.OpSet, Path: "/c", Data: []byte("data"), Version: 7, Version31: true},
		{Kind: znode.OpSet, Path: "/c", TTL: znode.Without, Linger: time.Minute},
		{Kind: znode.OpCreate, Path: "/e", Node: znode.Ephemeral, TTL: znode.MaxTTL, Linger: znode.MaxLinger},
		{Kind: znode.OpSet, Path: "/c", Linger: znode.Without},
		{Kind: znode.OpCheck, Path: "/d", Version: znode.AnyVersion, Czxid: 5, Owner: 6},
		{Kind: znode.OpDelete, Path: "/é", Version: -1 << 63, Owner: 9},
	}
	watch := &Expire{Session: 5, Generation: 1, Touched: 1 << 40, Term: 9}
	return []*Command{
		{Kind: CmdNewEpoch, Epoch: &NewEpoch{Term: 9, Clock: -1, MinEpoch: 1<<32 - 1, ClusterID: "id"}},
		{Kind: CmdBoot, Boot: &Boot{Server: testServer, Nonce: 1<<64 - 1}},
		{Kind: CmdOpen, Line: onServer, Seq: 1, Ack: 3, Attempt: 1<<32 - 1, Open: open},
		{Kind: CmdAttach, Line: onServer, Seq: 2, Attach: &Attach{
			Session: 8, Secret: session.Secret{1}, Connection: 4, Expect: 2, Nonce: session.Nonce{9}, Timeout: time.Second,
			Server: "n2~1", Boot: 2, Address: "[::1]:1", Protocol: session.ZooKeeper, Identities: ids,
		}},
		{Kind: CmdClose, Line: onSession, Seq: 1 << 40},
		{Kind: CmdWrite, Line: onSession, Seq: 3, Write: &Write{Ops: ops[2:3]}},
		{Kind: CmdWrite, Line: onServer, Seq: 4, Write: &Write{Multi: true, Ops: ops, RequestID: "r", ValidUntil: 1e12, Identities: ids, Trusted: true}},
		{Kind: CmdSkip, Line: onSession, Seq: 4, Code: CodeTooLarge},
		{Kind: CmdIdentities, Line: onSession, Seq: 5, Identities: ids},
		{Kind: CmdExpire, Expire: watch},
		{Kind: CmdSuspect, Expire: &Expire{Session: 5, Generation: 1, Touched: 1 << 40, Term: 9, Silent: 4 * time.Second}},
		{Kind: CmdUnsuspect, Expire: watch},
		{Kind: CmdReap, Term: 9, Reap: []znode.Reap{{Path: "/x", Mzxid: 1, Pzxid: 2}, {Path: "/y"}}},
		{Kind: CmdTrim, Line: onServer, Seq: 6, Trim: []Trim{{1, 2}, {3, 4}}},
		{Kind: CmdKill, Line: onServer, Seq: 7, Kill: &Kill{Session: 4, Reason: session.Killed}},
		{Kind: CmdFeature, Term: 9, Feature: 2},
		{Kind: CmdRemoveServer, Term: 9, Server: "n3~1"},
		{Kind: CmdRestoreBegin, Line: onServer, Seq: 8, Begin: &RestoreBegin{ID: "r", Nonce: session.Nonce{3}, Size: 1 << 40, SHA256: [32]byte{7}}},
		{Kind: CmdRestoreChunk, Line: onServer, Seq: 9, Chunk: &RestoreChunk{Nonce: session.Nonce{3}, Offset: 1 << 33, Data: []byte("bytes")}},
		{Kind: CmdRestoreCommit, Line: onServer, Seq: 10, Commit: &RestoreCommit{Nonce: session.Nonce{3}, MinEpoch: 1<<32 - 1, IntoEmpty: true, Abandon: true}},
	}
}

func TestCommandsComeBackAsTheyWereEncoded(t *testing.T) {
	seen := map[Kind]bool{}
	for _, c := range sampleCommands() {
		seen[c.Kind] = true
		b := AppendCommand(nil, c)
		var got Command
		if err := DecodeCommand(b, &got); err != nil {
			t.Fatalf("%s: %v", c.Kind, err)
		}
		if !reflect.DeepEqual(&got, c) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.Kind, got, *c)
		}
	}
	for k := CmdNewEpoch; k <= lastKind; k++ {
		if !seen[k] || strings.HasPrefix(k.String(), "kind(") {
			t.Errorf("no sample or no name for %s", k)
		}
	}
}

func TestNilAndEmptyDataDiffer(t *testing.T) {
	for _, data := range [][]byte{nil, {}, {0}} {
		c := &Command{Kind: CmdWrite, Write: &Write{Ops: []znode.Op{{Kind: znode.OpSet, Path: "/a", Data: data}}}}
		var got Command
		if err := DecodeCommand(AppendCommand(nil, c), &got); err != nil {
			t.Fatal(err)
		}
		if d := got.Write.Ops[0].Data; (d == nil) != (data == nil) || !bytes.Equal(d, data) {
			t.Errorf("%#v became %#v", data, d)
		}
	}
}

func TestEncodingIsAppendedAndMissingBodiesAreEmpty(t *testing.T) {
	for k := CmdNewEpoch; k <= lastKind; k++ {
		b := AppendCommand([]byte("before"), &Command{Kind: k})
		if !bytes.HasPrefix(b, []byte("before")) {
			t.Fatalf("%s: the bytes before it changed", k)
		}
		var got Command
		if err := DecodeCommand(b[len("before"):], &got); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
}

func TestBytesThatAreNoCommandAreRefused(t *testing.T) {
	good := AppendCommand(nil, sampleCommands()[6])
	spoil := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	bad := map[string][]byte{
		"nothing":           nil,
		"another version":   spoil(0, commandVersion+1),
		"unknown kind":      spoil(1, byte(lastKind)+1),
		"kind 0":            spoil(1, 0),
		"unknown line":      spoil(lineOffset, 3),
		"left over":         append(bytes.Clone(good), 0),
		"session 0":         {commandVersion, byte(CmdClose), 0, 0, 0, 0, sessionLine, 0, 1, 1, 0, 0},
		"nameless server":   {commandVersion, byte(CmdClose), 0, 0, 0, 0, serverLine, 0, 1, 1, 0, 0},
		"long number":       {commandVersion, byte(CmdClose), 0, 0, 0, 0, noLine, 0x80, 0x00, 0, 0},
		"huge count":        {commandVersion, byte(CmdTrim), 0, 0, 0, 0, noLine, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"unknown flag":      {commandVersion, byte(CmdWrite), 0, 0, 0, 0, noLine, 0, 0, 0, 0x80, 0},
		"empty identities":  {commandVersion, byte(CmdWrite), 0, 0, 0, 0, noLine, 0, 0, 0, writeIdentities, 0, 0},
		"feature too large": {commandVersion, byte(CmdFeature), 0, 0, 0, 0, noLine, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x1f},
	}
	for what, b := range bad {
		var c Command
		if err := DecodeCommand(b, &c); !errors.Is(err, ErrBadCommand) {
			t.Errorf("%s: %v", what, err)
		}
		if err := Validate(b); !errors.Is(err, ErrBadCommand) {
			t.Errorf("%s: Validate: %v", what, err)
		}
	}
	for n := range good {
		var c Command
		if err := DecodeCommand(good[:n], &c); !errors.Is(err, ErrBadCommand) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	if err := DecodeCommand(spoil(0, 9), new(Command)); !strings.Contains(err.Error(), "version 9") || !strings.Contains(err.Error(), "knows 1") {
		t.Errorf("an unknown version does not name both: %v", err)
	}
}

func TestValidateLetsThroughWhatAServerMayForward(t *testing.T) {
	for _, c := range sampleCommands() {
		c.Write = nil // the sample's caller is checked elsewhere
		err := Validate(AppendCommand(nil, c))
		if got, want := err == nil, !c.Kind.leaderOnly(); got != want {
			t.Errorf("%s: %v", c.Kind, err)
		}
	}
	odd := &Command{Kind: CmdSkip, Line: LineRef{Session: 1, Generation: 1}, Seq: 1, Code: 999}
	if err := Validate(AppendCommand(nil, odd)); !errors.Is(err, ErrMalformed) {
		t.Errorf("skip with an unknown code: %v", err)
	}
	wrong := &Command{Kind: CmdOpen, Line: LineRef{Session: 1, Generation: 1}, Seq: 1, Open: openOf(1)}
	if err := Validate(AppendCommand(nil, wrong)); !errors.Is(err, ErrMalformed) {
		t.Errorf("open on a session's line: %v", err)
	}
}

func TestAttemptIsPatchedInPlaceAndTheLineIsReadWithoutTheBody(t *testing.T) {
	for _, c := range sampleCommands() {
		b := AppendCommand(nil, c)
		SetAttempt(b, 0xdeadbeef)
		var got Command
		if err := DecodeCommand(b, &got); err != nil || got.Attempt != 0xdeadbeef {
			t.Fatalf("%s: attempt %x, %v", c.Kind, got.Attempt, err)
		}
		got.Attempt = c.Attempt
		if !reflect.DeepEqual(&got, c) {
			t.Fatalf("%s: more than the attempt changed", c.Kind)
		}
		if line, seq, ok := PeekLine(b); !ok || line != c.Line || seq != c.Seq {
			t.Fatalf("%s: peeked %+v %d %v", c.Kind, line, seq, ok)
		}
	}
	SetAttempt([]byte{1, 2, 3}, 9)
	if _, _, ok := PeekLine([]byte{1, 2, 3}); ok {
		t.Fatal("three bytes are no command")
	}
}

func TestHashTellsRequestsApart(t *testing.T) {
	hashOf := func(w Write) uint64 {
		w.RequestID = "id"
		AppendCommand(nil, &Command{Kind: CmdWrite, Write: &w})
		return w.Hash
	}
	base := Write{Ops: []znode.Op{create("/a")}}
	other := base
	other.Identities, other.Trusted, other.ValidUntil = []session.Identity{{Scheme: "ip", ID: "x"}}, true, 5
	if hashOf(base) != hashOf(other) {
		t.Error("the hash depends on who asks")
	}
	null := create("/a")
	null.Data = nil
	for what, w := range map[string]Write{
		"path": {Ops: []znode.Op{create("/b")}}, "kind": {Ops: []znode.Op{set("/a", "d")}}, "data": {Ops: []znode.Op{null}},
		"multi": {Multi: true, Ops: []znode.Op{create("/a")}}, "more": {Ops: []znode.Op{create("/a"), create("/a")}},
	} {
		if hashOf(w) == hashOf(base) {
			t.Errorf("%s: same hash", what)
		}
	}
	w := Write{Ops: []znode.Op{create("/a")}, Hash: 99}
	if AppendCommand(nil, &Command{Kind: CmdWrite, Write: &w}); w.Hash != 0 {
		t.Error("a write without a request id has a hash")
	}
}

func TestBatchGivesBackItsCommands(t *testing.T) {
	b := NewBatch([]byte(nil), 12345)
	var want [][]byte
	for _, c := range sampleCommands() {
		cmd := AppendCommand(nil, c)
		want = append(want, cmd)
		b = AppendToBatch(b, cmd)
	}
	var got [][]byte
	if err := ForEach(b, func(cmd []byte) error { got = append(got, cmd); return nil }); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatal("the commands differ")
	}
	if clock, err := BatchClock(b); clock != 12345 || err != nil {
		t.Fatalf("clock %d, %v", clock, err)
	}
	stop := errors.New("stop")
	if err := ForEach(b, func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Fatalf("%v", err)
	}
	for _, bad := range [][]byte{nil, {entryVersion}, {entryVersion + 1, 0, 0, 0, 0, 0, 0, 0, 0}, append(NewBatch(nil, 1), 5, 1)} {
		if err := ForEach(bad, func([]byte) error { return nil }); !errors.Is(err, ErrBadCommand) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// The numbers of our codes are those of the public protocol.
func TestCodesAreThoseOfTheProtocol(t *testing.T) {
	proto, err := os.ReadFile("../api/coordpb/coord.proto")
	if err != nil {
		t.Fatal(err)
	}
	_, enum, ok := strings.Cut(string(proto), "enum Code {")
	if !ok {
		t.Fatal("no enum Code")
	}
	enum, _, _ = strings.Cut(enum, "}")
	inProto := map[Code]string{}
	for _, m := range regexp.MustCompile(`CODE_(\w+) = (\d+);`).FindAllStringSubmatch(enum, -1) {
		n, _ := strconv.Atoi(m[2])
		inProto[Code(n)] = m[1]
	}
	if len(inProto) != len(codeTable)+1 {
		t.Fatalf("%d codes in the protocol, %d here", len(inProto), len(codeTable)+1)
	}
	for _, row := range codeTable {
		if inProto[row.code] == "" {
			t.Errorf("code %d (%v) is not in the protocol", row.code, row.err)
		}
	}
	for name, c := range map[string]Code{
		"NO_NODE": CodeNoNode, "PROTECTED": CodeProtected, "DISK_FULL": CodeDiskFull, "WRONG_CLUSTER": CodeWrongCluster,
		"CANCELLED": CodeCancelled, "GAP": CodeGap, "TIMEOUT": CodeTimeout, "SLOW_CONSUMER": CodeSlowConsumer, "OK": CodeOK,
	} {
		if inProto[c] != name {
			t.Errorf("%d is %s in the protocol, %s here", c, inProto[c], name)
		}
	}
}

func TestEveryErrorHasItsCodeAndBack(t *testing.T) {
	for _, row := range codeTable {
		if got := CodeOf(fmt.Errorf("wrapped: %w", row.err)); got != row.code {
			t.Errorf("%v has code %d, want %d", row.err, got, row.code)
		}
		if !errors.Is(row.code.Err(), row.err) {
			t.Errorf("code %d gives %v", row.code, row.code.Err())
		}
	}
	if CodeOf(nil) != CodeOK || CodeOK.Err() != nil {
		t.Error("no error is not CodeOK")
	}
	if CodeOf(errors.New("other")) != CodeInternal || !errors.Is(Code(999).Err(), ErrInternal) {
		t.Error("what is in no table is not internal")
	}
	if CodeOf(session.ErrRequestsFull) != CodeOverloaded {
		t.Error("a full table of request ids is not an overload")
	}
	if CodeOf(&znode.MultiError{Index: 1, Err: znode.ErrNoNode}) != CodeNoNode {
		t.Error("a multi has not the code of its failed part")
	}
}

func sampleResults() []*Result {
	stat := znode.Stat{
		Czxid: 1, Mzxid: 2, Pzxid: 3, Ctime: -4, Mtime: 5, Version: 1 << 40, Cversion: 7, Aversion: 8,
		EphemeralOwner: 9, DataLength: 10, NumChildren: 11, Kind: znode.TTL, TTL: time.Second, Linger: time.Hour,
	}
	return []*Result{
		{Kind: CmdWrite, Zxid: 77, ValidUntil: 5, Deduplicated: true, Ops: []znode.OpResult{
			{Kind: znode.OpCreate, Path: "/a", Stat: stat}, {Kind: znode.OpSet, Path: "/b", Err: znode.ErrRolledBack},
		}},
		{Kind: CmdSkip, Err: ErrTooLarge},
		{Kind: CmdWrite, Zxid: 1 << 62, Err: &znode.MultiError{Index: 3, Err: &znode.VersionError{Path: "/v", Have: 1, Want: -2, What: "czxid"}}},
		{Kind: CmdWrite, Err: &znode.VersionError{Path: "/v", Have: 1, Want: 2, What: ""}},
		{Kind: CmdWrite, Err: fmt.Errorf("create %q: %w", "/a/b", znode.ErrNoNode)},
		{Kind: CmdOpen, Err: &session.IdentityError{Identity: "w", Current: 8}},
		{Kind: CmdAttach, Session: &SessionInfo{ID: 4, Secret: session.Secret{1, 2}, Timeout: time.Minute, Generation: 2, Next: 9, Elsewhere: true}},
	}
}

func TestRememberedAnswersSayTheSameAfterASnapshot(t *testing.T) {
	for i, r := range sampleResults() {
		b := appendResult(nil, r)
		got, err := decodeResult(b)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if !bytes.Equal(appendResult(nil, got), b) {
			t.Errorf("%d: encodes differently", i)
		}
		if got.Digest() != r.Digest() || got.Size() != r.Size() {
			t.Errorf("%d: another digest or size", i)
		}
		if fmt.Sprint(got.Err) != fmt.Sprint(r.Err) || CodeOf(got.Err) != CodeOf(r.Err) {
			t.Errorf("%d: %v became %v", i, r.Err, got.Err)
		}
		got.Err, r.Err = nil, nil
		if !reflect.DeepEqual(got, r) {
			t.Errorf("%d: %+v became %+v", i, r, got)
		}
		for n := range b {
			if _, err := decodeResult(b[:n]); err == nil {
				t.Fatalf("%d: cut at %d is accepted", i, n)
			}
		}
	}
}

func TestResultDigestSeesEveryField(t *testing.T) {
	base := func() *Result {
		return &Result{
			Kind: CmdWrite, Zxid: 1, Ops: []znode.OpResult{{Kind: znode.OpSet, Path: "/a", Stat: znode.Stat{Version: 1}}},
			Session: &SessionInfo{ID: 1},
		}
	}
	digests := map[uint64]string{base().Digest(): "unchanged"}
	for what, change := range map[string]func(r *Result){
		"kind": func(r *Result) { r.Kind = CmdReap }, "zxid": func(r *Result) { r.Zxid = zxid.ID(2) },
		"error": func(r *Result) { r.Err = ErrGap }, "end": func(r *Result) { r.ValidUntil = 1 },
		"dedup": func(r *Result) { r.Deduplicated = true }, "path": func(r *Result) { r.Ops[0].Path = "/b" },
		"stat": func(r *Result) { r.Ops[0].Stat.Version = 2 }, "op error": func(r *Result) { r.Ops[0].Err = ErrGap },
		"ops": func(r *Result) { r.Ops = nil }, "session": func(r *Result) { r.Session.Next = 2 },
		"secret": func(r *Result) { r.Session.Secret[0] = 1 }, "no session": func(r *Result) { r.Session = nil },
	} {
		r := base()
		change(r)
		if other, same := digests[r.Digest()]; same {
			t.Errorf("%s and %s have one digest", what, other)
		}
		digests[r.Digest()] = what
	}
}
