package server

import (
	"strings"
	"testing"

	"github.com/coordd/coord/api/coordpb"
)

func TestSessionWritesAndReadsItsWrites(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	if w := c.welcome; w.GetConnection() != 1 || w.GetNextSeq() != 1 || w.GetTimeoutMs() != 10_000 || len(w.GetSecret()) != 16 || w.GetClusterId() == "" {
		t.Fatalf("welcome %v", w)
	}
	created := c.must(create("/a", "1"))
	if res := created.GetResults(); len(res) != 1 || res[0].GetPath() != "/a" || res[0].GetStat().GetCzxid() != created.GetZxid() {
		t.Fatalf("create: %v", created)
	}
	seq := c.offer(set("/a", "2"))
	for _, mode := range []coordpb.ReadMode{coordpb.ReadMode_READ_MODE_LINEARIZABLE, coordpb.ReadMode_READ_MODE_SESSION, coordpb.ReadMode_READ_MODE_STALE} {
		read := get("/a")
		read.Mode, read.AfterSeq = mode, seq
		got := c.read(read)
		if string(got.GetRead().GetData()) != "2" || got.GetRead().GetStat().GetVersion() != 1 {
			t.Fatalf("%s: %v", mode, got)
		}
		if stale := got.GetRead().GetStale(); stale != (mode == coordpb.ReadMode_READ_MODE_STALE) {
			t.Fatalf("%s: stale is %t", mode, stale)
		}
	}
	wantCode(t, c.write(create("/a", "")).GetError(), coordpb.Code_CODE_NODE_EXISTS)
	bad := set("/a", "3")
	bad.Version = 7
	e := c.write(bad).GetError()
	wantCode(t, e, coordpb.Code_CODE_BAD_VERSION)
	if e.GetHave() != 1 || e.GetWant() != 7 || e.GetPath() != "/a" {
		t.Fatalf("version error %v", e)
	}
}

func TestMultiIsAllOrNothingAndNamesTheCulprit(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	id, _ := c.watch(&coordpb.Watch{Path: "/", Kind: coordpb.Watch_KIND_RECURSIVE})
	got := c.write(create("/a", ""), remove("/none"), create("/b", ""))
	wantCode(t, got.GetError(), coordpb.Code_CODE_NO_NODE)
	if got.GetError().GetOpIndex() != 1 || len(got.GetResults()) != 3 {
		t.Fatalf("failed multi: %v", got)
	}
	wantCode(t, got.GetResults()[1].GetError(), coordpb.Code_CODE_NO_NODE)
	wantCode(t, got.GetResults()[2].GetError(), coordpb.Code_CODE_ROLLED_BACK)
	wantCode(t, c.read(get("/a")).GetError(), coordpb.Code_CODE_NO_NODE)
	ok := c.must(create("/a", ""), create("/b", ""))
	if got := c.seen(); len(got) != 2 || got[0].GetWatchId() != id || got[0].GetZxid() != ok.GetZxid() || got[0].GetLast() || !got[1].GetLast() {
		t.Fatalf("events %v: a failed transaction fires nothing, one that succeeds fires all", got)
	}
}

func TestRepeatedOpenGivesTheSameSession(t *testing.T) {
	r := start(t, oneServer(t))
	first := r.open()
	first.must(create("/a", ""))
	second := r.open(func(h *coordpb.Hello) { h.Nonce = first.nonce })
	if first.welcome.GetSessionId() != second.welcome.GetSessionId() || string(first.welcome.GetSecret()) != string(second.welcome.GetSecret()) {
		t.Fatalf("another session: %v, %v", first.welcome, second.welcome)
	}
	if second.welcome.GetNextSeq() != 2 {
		t.Fatalf("next number %d", second.welcome.GetNextSeq())
	}
	wantCode(t, first.end(), coordpb.Code_CODE_SESSION_MOVED)
	second.must(create("/b", ""))
}

func TestAttachEndsTheOlderStreamAndAnswersFromMemory(t *testing.T) {
	r := start(t, oneServer(t))
	first := r.open()
	before := first.must(create("/a", "1"))
	second := r.attach(first, 2)
	wantCode(t, first.end(), coordpb.Code_CODE_SESSION_MOVED)
	if second.welcome.GetConnection() != 2 || second.welcome.GetNextSeq() != 2 {
		t.Fatalf("welcome %v", second.welcome)
	}
	second.seq = 0 // offer the first write again, as a client does that lost the answer
	again := second.must(create("/a", "1"))
	if again.GetZxid() != before.GetZxid() {
		t.Fatalf("repeated write: %v, first: %v", again, before)
	}
	wantCode(t, r.attach(first, 1+1).welcome.GetError(), coordpb.Code_CODE_OK) // the same number again: a repeat
	late := r.attach(first, 3)
	wantCode(t, late.welcome.GetError(), coordpb.Code_CODE_OK)
	wantCode(t, r.attach(first, 2).welcome.GetError(), coordpb.Code_CODE_SESSION_MOVED)
}

func TestAttachIsRefusedWithoutTheSecret(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	wrong := &coordpb.Hello{Mode: coordpb.Hello_MODE_ATTACH, SessionId: c.welcome.GetSessionId(), Secret: nonce(), Connection: 2}
	before := r.cluster.Counters().Proposals
	wantCode(t, r.hello(wrong).welcome.GetError(), coordpb.Code_CODE_AUTH_FAILED)
	wrong.SessionId = 77
	wantCode(t, r.hello(wrong).welcome.GetError(), coordpb.Code_CODE_UNKNOWN_SESSION)
	if now := r.cluster.Counters().Proposals; now != before {
		t.Fatalf("guessing cost the log %d entries", now-before)
	}
	wrong.SessionId = c.welcome.GetSessionId() + 1<<32 // not opened yet, for all this server knows
	wantCode(t, r.hello(wrong).welcome.GetError(), coordpb.Code_CODE_UNKNOWN_SESSION)
}

func TestCloseIsAnsweredThenTheStreamEnds(t *testing.T) {
	r := start(t, oneServer(t))
	c, other := r.open(), r.open()
	c.must(ephemeral("/e"))
	id, _ := other.watch(&coordpb.Watch{Path: "/", Kind: coordpb.Watch_KIND_RECURSIVE})
	c.seq++
	c.send(&coordpb.Request{Seq: c.seq, Close: true})
	if got := c.answer(c.seq); got.GetError() != nil || got.GetZxid() == 0 {
		t.Fatalf("close: %v", got)
	}
	wantCode(t, c.end(), coordpb.Code_CODE_SESSION_CLOSED)
	other.wait("the ephemeral goes", func() bool { return len(other.events) == 1 })
	if e := other.seen()[0]; e.GetWatchId() != id || e.GetCause() != coordpb.Cause_CAUSE_SESSION_CLOSED || e.GetPath() != "/e" || e.GetSession() != c.welcome.GetSessionId() {
		t.Fatalf("event %v", e)
	}
	again := r.attach(c, 2)
	wantCode(t, again.welcome.GetError(), coordpb.Code_CODE_SESSION_CLOSED)
	if got := again.welcome.GetError().GetSessionEnd(); got != coordpb.SessionEnd_SESSION_END_CLOSED {
		t.Fatalf("the refusal says %s", got)
	}
	if again.welcome.GetNextSeq() != 3 {
		t.Fatalf("the client must learn that write 3 was not done: %v", again.welcome)
	}
}

func TestIdentityIsTakenOverByNameOnly(t *testing.T) {
	r := start(t, oneServer(t))
	named := func(take uint64) *coordpb.Hello {
		return &coordpb.Hello{Mode: coordpb.Hello_MODE_OPEN, Nonce: nonce(), Identity: "worker-1", TakeOver: take}
	}
	first := r.hello(named(0))
	refused := r.hello(named(0)).welcome
	wantCode(t, refused.GetError(), coordpb.Code_CODE_IDENTITY_IN_USE)
	if refused.GetCurrent() != first.welcome.GetSessionId() {
		t.Fatalf("refusal %v does not name the holder", refused)
	}
	second := r.hello(named(refused.GetCurrent()))
	wantCode(t, second.welcome.GetError(), coordpb.Code_CODE_OK)
	end := first.end()
	wantCode(t, end, coordpb.Code_CODE_SESSION_EXPIRED)
	if end.GetSessionEnd() != coordpb.SessionEnd_SESSION_END_TAKEN_OVER {
		t.Fatalf("the end does not say why: %v", end)
	}
}

func TestHelloIsChecked(t *testing.T) {
	r := start(t, oneServer(t))
	for name, c := range map[string]struct {
		hello *coordpb.Hello
		want  coordpb.Code
	}{
		"no mode":         {&coordpb.Hello{}, coordpb.Code_CODE_MALFORMED},
		"unknown mode":    {&coordpb.Hello{Mode: 99}, coordpb.Code_CODE_MALFORMED},
		"short nonce":     {&coordpb.Hello{Mode: coordpb.Hello_MODE_OPEN, Nonce: []byte("short")}, coordpb.Code_CODE_MALFORMED},
		"zero nonce":      {&coordpb.Hello{Mode: coordpb.Hello_MODE_OPEN, Nonce: make([]byte, 16)}, coordpb.Code_CODE_MALFORMED},
		"long name":       {&coordpb.Hello{Mode: coordpb.Hello_MODE_NONE, Name: strings.Repeat("x", 257)}, coordpb.Code_CODE_MALFORMED},
		"attach nothing":  {&coordpb.Hello{Mode: coordpb.Hello_MODE_ATTACH}, coordpb.Code_CODE_MALFORMED},
		"other cluster":   {&coordpb.Hello{Mode: coordpb.Hello_MODE_NONE, ClusterId: "elsewhere"}, coordpb.Code_CODE_WRONG_CLUSTER},
		"unknown scheme":  {&coordpb.Hello{Mode: coordpb.Hello_MODE_NONE, Auth: []*coordpb.Auth{{Scheme: "kerberos"}}}, coordpb.Code_CODE_AUTH_FAILED},
		"huge credential": {&coordpb.Hello{Mode: coordpb.Hello_MODE_NONE, Auth: []*coordpb.Auth{{Scheme: "digest", Credential: make([]byte, 2000)}}}, coordpb.Code_CODE_AUTH_FAILED},
	} {
		t.Run(name, func(t *testing.T) {
			wantCode(t, r.hello(c.hello).welcome.GetError(), c.want)
		})
	}
	for asked, granted := range map[int64]int64{0: 10_000, 1: 2_000, 5_000: 5_000, 1 << 60: 300_000} {
		got := r.open(func(h *coordpb.Hello) { h.TimeoutMs = asked }).welcome.GetTimeoutMs()
		if got != granted {
			t.Errorf("asked for %d ms, granted %d, want %d", asked, got, granted)
		}
	}
}

func TestStreamWithoutSessionReadsAndWatchesOnly(t *testing.T) {
	r := start(t, oneServer(t))
	writer, c := r.open(), r.hello(&coordpb.Hello{Mode: coordpb.Hello_MODE_NONE})
	if _, reply := c.watch(&coordpb.Watch{Path: "/a"}); reply.GetError().GetCode() != coordpb.Code_CODE_MALFORMED {
		t.Fatalf("a watch without a kind: %v", reply)
	}
	c.watch(&coordpb.Watch{Path: "/a", Kind: coordpb.Watch_KIND_NODE})
	writer.must(create("/a", "x"))
	c.wait("event", func() bool { return len(c.events) == 1 })
	c.offer(create("/b", ""))
	wantCode(t, c.end(), coordpb.Code_CODE_MALFORMED)
}
