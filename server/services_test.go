package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/coordd/coord/api/coordpb"
)

func (r *running) httpGet(path string) (int, string) {
	r.t.Helper()
	resp, err := http.Get("http://" + r.Addrs().HTTP.String() + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestHealthOverHTTPAndGRPC(t *testing.T) {
	r := start(t, oneServer(t))
	if code, body := r.httpGet("/livez"); code != 200 || body != "ok\n" {
		t.Errorf("livez: %d %q", code, body)
	}
	code, body := r.httpGet("/readyz?verbose")
	if code != 200 || !strings.Contains(body, "[+] leader: n1") ||
		!strings.Contains(body, "[+] formed: a majority") || !strings.HasSuffix(body, "ready\n") {
		t.Errorf("readyz: %d %q", code, body)
	}
	health := grpc_health_v1.NewHealthClient(r.conn)
	for _, service := range []string{"", leaderService} {
		eventually(t, service+" serves", func() bool {
			got, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
			return err == nil && got.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING
		})
	}
	if code, _ := r.httpGet("/debug/pprof/"); code != 404 {
		t.Errorf("pprof is served although it is off: %d", code)
	}
	stream, err := grpc_reflection_v1.NewServerReflectionClient(r.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
	if got, err := stream.Recv(); err != nil || !strings.Contains(got.String(), "coord.v1.Admin") {
		t.Errorf("reflection: %v, %v", got, err)
	}
}

// TestMetricsParseAndKeepTheirNames checks the exposition as Prometheus would,
// and the names that dashboards and alerts rely on.
func TestMetricsParseAndKeepTheirNames(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	c.must(create("/a", "x"))
	c.read(get("/a"))
	c.read(get("/none"))
	c.watch(&coordpb.Watch{Path: "/", Kind: coordpb.Watch_KIND_RECURSIVE})
	c.must(set("/a", "y"))
	eventually(t, "the replies are counted", func() bool { return r.metrics.total() >= 5 })
	code, body := r.httpGet("/metrics")
	if code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"coord_build_info", "coord_start_time_seconds", "coord_raft_is_leader", "coord_raft_has_leader", "coord_raft_term",
		"coord_raft_leader_changes_total", "coord_raft_last_index", "coord_raft_commit_index", "coord_raft_applied_index",
		"coord_raft_peers", "coord_raft_fsync_duration_seconds", "coord_raft_commit_duration_seconds",
		"coord_raft_apply_duration_seconds", "coord_requests_total", "coord_request_duration_seconds",
		"coord_requests_in_flight", "coord_proposals_pending", "coord_throttled_requests_total",
		"coord_deduplicated_requests_total", "coord_sessions", "coord_sessions_opened_total", "coord_sessions_closed_total",
		"coord_session_silence_ratio", "coord_znodes", "coord_data_bytes", "coord_watches", "coord_watch_events_total",
		"coord_connections", "coord_zxid_epoch", "coord_zxid_counter",
		"coord_raft_last_contact_seconds", "coord_raft_snapshot_duration_seconds", "coord_raft_snapshot_size_bytes",
		"coord_store_size_bytes", "coord_store_free_bytes", "coord_proposals_failed_total", "coord_process_stall_seconds_total",
		"coord_watch_lag_seconds", "coord_tls_certificate_expiry_timestamp_seconds", "coord_tls_reload_failures_total",
		"process_cpu_seconds_total", "process_resident_memory_bytes", "go_goroutines",
	} {
		if families[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	if !strings.Contains(body, "hraft_") {
		t.Error("nothing of the Raft library")
	}
	for _, want := range []string{
		`coord_requests_total{code="CODE_OK",op="create",protocol="grpc"} 1`,
		`coord_requests_total{code="CODE_NO_NODE",op="get",protocol="grpc"} 1`,
		`coord_sessions{protocol="grpc",state="attached"} 1`,
		`coord_watches{kind="recursive"} 1`, `coord_znodes{type="persistent"}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no line %s", want)
		}
	}
	for _, h := range []string{"coord_raft_fsync_duration_seconds", "coord_raft_commit_duration_seconds", "coord_raft_apply_duration_seconds"} {
		if n := families[h].GetMetric()[0].GetHistogram().GetSampleCount(); n == 0 {
			t.Errorf("%s counts nothing", h)
		}
	}
	lintMetrics(t, body)
}

// lintMetrics holds our own metrics to Prometheus' conventions.
func lintMetrics(t *testing.T, body string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "coord_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestAdminLooksAndActs(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open(func(h *coordpb.Hello) { h.Name = "worker" })
	c.must(ephemeral("/e"))
	admin := coordpb.NewAdminClient(r.conn)
	st, err := admin.Status(t.Context(), &coordpb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if st.GetServer() != "n1" || st.GetLeader() != "n1" || !st.GetReady() || st.GetSessions() != 1 || len(st.GetMembers()) != 1 ||
		st.GetMembers()[0].GetRole() != coordpb.Member_ROLE_LEADER || st.GetDigest() == 0 || st.GetVersion() != "test" ||
		st.GetZxid() == 0 || !st.GetMembersFromLeader() || len(st.GetChecks()) == 0 {
		t.Errorf("status %v", st)
	}
	eventually(t, "the member says where clients reach it", func() bool {
		st, err := admin.Status(t.Context(), &coordpb.StatusRequest{})
		m := st.GetMembers()[0]
		return err == nil && m.GetGrpcAddress() == r.Addrs().GRPC.String() && m.GetHttpAddress() == r.Addrs().HTTP.String() && m.GetSessions() == 1 && m.GetReady()
	})
	stats, err := admin.Stats(t.Context(), &coordpb.StatsRequest{})
	if err != nil || stats.GetCpuSeconds() <= 0 || stats.GetRssBytes() < 1<<20 || stats.GetGoroutines() == 0 || stats.GetConnections() != 1 ||
		stats.GetTransactions() == 0 || stats.GetHeapBytes() == 0 || stats.GetPid() == 0 {
		t.Errorf("stats %v, %v", stats, err)
	}
	list, err := admin.Sessions(t.Context(), &coordpb.SessionsRequest{})
	if err != nil || len(list.GetSessions()) != 1 || list.GetMore() {
		t.Fatalf("sessions %v, %v", list, err)
	}
	s := list.GetSessions()[0]
	if s.GetName() != "worker" || s.GetServer() != "n1" || s.GetEphemerals() != 1 || s.GetWatches() != 0 || s.GetLastHeardMs() < 0 ||
		s.GetConnection() != 1 || s.GetProtocol() != "grpc" || !strings.HasPrefix(s.GetAddress(), "127.0.0.1:") {
		t.Errorf("session %v", s)
	}
	snap, err := admin.Snapshot(t.Context(), &coordpb.SnapshotRequest{})
	if err != nil || snap.GetError() != nil || snap.GetIndex() == 0 {
		t.Errorf("snapshot %v, %v", snap, err)
	}
	again, err := admin.Init(t.Context(), &coordpb.InitRequest{})
	if err != nil || again.GetError() == nil || again.GetClusterId() != st.GetClusterId() {
		t.Errorf("init of a formed cluster: %v, %v", again, err)
	}
	move, err := admin.MoveLeader(t.Context(), &coordpb.MoveLeaderRequest{To: "nobody"})
	if err != nil || move.GetError() == nil {
		t.Errorf("move to nobody: %v, %v", move, err)
	}
}

func TestSessionsAreListedInPages(t *testing.T) {
	r := start(t, oneServer(t))
	for range 5 {
		r.open()
	}
	admin := coordpb.NewAdminClient(r.conn)
	var after uint64
	seen := 0
	for more := true; more; {
		page, err := admin.Sessions(t.Context(), &coordpb.SessionsRequest{After: after, Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.GetSessions() {
			if s.GetId() <= after {
				t.Fatalf("session %x behind %x", s.GetId(), after)
			}
			after = s.GetId()
			seen++
		}
		more = page.GetMore()
	}
	if seen != 5 {
		t.Errorf("%d sessions listed", seen)
	}
}

func TestSessionlessWriteIsRepeatedFromMemory(t *testing.T) {
	r := start(t, oneServer(t))
	req := &coordpb.WriteRequest{
		RequestId: "once",
		Write:     &coordpb.Write{Ops: []*coordpb.Op{{Kind: coordpb.Op_KIND_CREATE, Path: "/s-", Sequential: true}}},
	}
	first, err := r.coord().Write(t.Context(), req)
	if err != nil || first.GetError() != nil || first.GetValidUntilMs() == 0 || first.GetRepeatedAnswer() {
		t.Fatal(first, err)
	}
	if until := time.UnixMilli(first.GetValidUntilMs()); time.Until(until) > requestValidity+time.Minute || time.Until(until) < requestValidity-time.Minute {
		t.Errorf("valid until %s", until)
	}
	req.ValidUntilMs = first.GetValidUntilMs()
	second, err := r.coord().Write(t.Context(), req)
	if err != nil || second.GetError() != nil || !second.GetRepeatedAnswer() || second.GetZxid() != first.GetZxid() ||
		second.GetResults()[0].GetPath() != first.GetResults()[0].GetPath() {
		t.Fatalf("repeat %v, %v; first %v", second, err, first)
	}
	req.Write.Ops[0].Path = "/other-"
	reused, err := r.coord().Write(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, reused.GetError(), coordpb.Code_CODE_REQUEST_ID_REUSED)
	old, err := r.coord().Write(t.Context(), &coordpb.WriteRequest{RequestId: "late", ValidUntilMs: 1, Write: &coordpb.Write{Ops: []*coordpb.Op{create("/late", "")}}})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, old.GetError(), coordpb.Code_CODE_REQUEST_ID_TOO_OLD)
	long, err := r.coord().Write(t.Context(), &coordpb.WriteRequest{RequestId: strings.Repeat("x", 257), Write: &coordpb.Write{Ops: []*coordpb.Op{create("/l", "")}}})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, long.GetError(), coordpb.Code_CODE_MALFORMED)
}

func TestListingsComeInPages(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	c.must(create("/d", ""))
	var want []string
	for i := range 25 {
		c.offer(create(fmt.Sprintf("/d/%02d", i), strings.Repeat("x", i)))
		want = append(want, fmt.Sprintf("%02d", i))
	}
	c.answer(c.seq)
	var got []string
	after, more := "", true
	for more {
		page := c.read(&coordpb.Read{Kind: coordpb.Read_KIND_CHILDREN, Path: "/d", After: after, Limit: 10}).GetRead()
		got = append(got, page.GetNames()...)
		more, after = page.GetMore(), got[len(got)-1]
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("children %v", got)
	}
	var paths []string
	after, more = "", true
	for more {
		page := c.read(&coordpb.Read{Kind: coordpb.Read_KIND_WALK, Path: "/d", After: after, Limit: 7, WithData: true}).GetRead()
		for _, n := range page.GetNodes() {
			paths = append(paths, n.GetPath())
			if len(n.GetData()) != int(n.GetStat().GetDataLength()) {
				t.Errorf("%s has %d bytes of data, Stat says %d", n.GetPath(), len(n.GetData()), n.GetStat().GetDataLength())
			}
		}
		more, after = page.GetMore(), paths[len(paths)-1]
	}
	if len(paths) != 26 || paths[0] != "/d" || paths[25] != "/d/24" {
		t.Errorf("walk %v", paths)
	}
	if n := c.read(&coordpb.Read{Kind: coordpb.Read_KIND_COUNT, Path: "/d"}).GetRead().GetCount(); n != 25 {
		t.Errorf("count %d", n)
	}
	c.must(ephemeral("/d/e"))
	if names := c.read(&coordpb.Read{Kind: coordpb.Read_KIND_EPHEMERALS}).GetRead().GetNames(); len(names) != 1 || names[0] != "/d/e" {
		t.Errorf("ephemerals %v", names)
	}
	if z := c.read(&coordpb.Read{Kind: coordpb.Read_KIND_SYNC}).GetZxid(); z < c.mark {
		t.Errorf("sync at %x", z)
	}
	if acl := c.read(&coordpb.Read{Kind: coordpb.Read_KIND_ACL, Path: "/d"}).GetRead().GetAcl(); len(acl) != 1 || acl[0].GetScheme() != "world" {
		t.Errorf("acl %v", acl)
	}
}

// TestPlaceInAQueueIsOneSmallAnswer: the waiters of a lock ask who is before them.
func TestPlaceInAQueueIsOneSmallAnswer(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	c.must(create("/q", ""))
	var names []string
	for _, prefix := range []string{"z-", "a-", "_c_-"} {
		op := create("/q/"+prefix, "")
		op.Sequential = true
		names = append(names, strings.TrimPrefix(c.must(op).GetResults()[0].GetPath(), "/q/"))
	}
	c.must(create("/q/readme", ""))
	c.must(create("/q/b-0000000001", "")) // the same number as that of a-
	names = []string{names[0], names[1], "b-0000000001", names[2]}
	place := func(name string) *coordpb.Reply {
		return c.read(&coordpb.Read{Kind: coordpb.Read_KIND_PREDECESSOR, Path: "/q", After: name, Mode: coordpb.ReadMode_READ_MODE_SESSION})
	}
	for i, name := range names {
		got := place(name).GetRead()
		own := c.read(&coordpb.Read{Kind: coordpb.Read_KIND_EXISTS, Path: "/q/" + name}).GetRead().GetStat()
		if got.GetCount() != int64(i) || got.GetStat().GetCzxid() != own.GetCzxid() || own.GetCzxid() == 0 {
			t.Errorf("%s: %v, want %d ahead", name, got, i)
		}
		want := names[:i][max(0, i-1):]
		if !slices.Equal(got.GetNames(), want) {
			t.Errorf("before %s: %v, want %v", name, got.GetNames(), want)
		}
	}
	wantCode(t, place("readme").GetError(), coordpb.Code_CODE_BAD_ARGUMENTS)
	wantCode(t, place("").GetError(), coordpb.Code_CODE_BAD_ARGUMENTS)
	wantCode(t, place("x-0000000009").GetError(), coordpb.Code_CODE_NO_NODE)
}

// TestListingStaysBelowTheFrame: whatever limit the client names, a page never
// becomes a message that it cannot take.
func TestListingStaysBelowTheFrame(t *testing.T) {
	cfg := oneServer(t)
	cfg.Limits = Limits{FrameBytes: 64 << 10, NodeBytes: 32 << 10}
	r := start(t, cfg)
	c := r.open()
	c.must(create("/d", ""))
	for i := range 100 {
		c.must(create(fmt.Sprintf("/d/%03d%s", i, strings.Repeat("x", 1000)), strings.Repeat("y", 1000)))
	}
	for _, kind := range []coordpb.Read_Kind{coordpb.Read_KIND_CHILDREN, coordpb.Read_KIND_WALK} {
		pages, seen, after, more := 0, 0, "", true
		for more {
			read := &coordpb.Read{Kind: kind, Path: "/d", After: after, WithData: true}
			got := c.read(read).GetRead()
			for _, n := range got.GetNames() {
				after = n
			}
			for _, n := range got.GetNodes() {
				after = n.GetPath()
			}
			seen += len(got.GetNames()) + len(got.GetNodes())
			pages++
			more = got.GetMore()
		}
		if pages < 2 || seen < 100 {
			t.Errorf("%s: %d entries on %d pages", kind, seen, pages)
		}
	}
}

func TestHeartbeatIsAnsweredForOwnSessionsOnly(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	stream, err := coordpb.NewCoordClient(r.dial()).Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	beat := func(change func(b *coordpb.HeartbeatRequest)) *coordpb.HeartbeatReply {
		t.Helper()
		b := &coordpb.HeartbeatRequest{SessionId: c.welcome.GetSessionId(), Secret: c.welcome.GetSecret(), Connection: 1, Number: 7}
		change(b)
		if err := stream.Send(b); err != nil {
			t.Fatal(err)
		}
		got, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := beat(func(*coordpb.HeartbeatRequest) {}); got.GetError() != nil || got.GetNumber() != 7 || got.GetSessionId() != c.welcome.GetSessionId() {
		t.Errorf("heartbeat: %v", got)
	}
	wantCode(t, beat(func(b *coordpb.HeartbeatRequest) { b.Secret = nonce() }).GetError(), coordpb.Code_CODE_AUTH_FAILED)
	wantCode(t, beat(func(b *coordpb.HeartbeatRequest) { b.SessionId++ }).GetError(), coordpb.Code_CODE_SESSION_MOVED)
	moved := r.attach(c, 2)
	wantCode(t, beat(func(*coordpb.HeartbeatRequest) {}).GetError(), coordpb.Code_CODE_SESSION_MOVED)
	moved.cancel() // the session lives on while its stream is being renewed
	eventually(t, "the stream is gone", func() bool { return len(r.hub.streams()) == 0 })
	if got := beat(func(b *coordpb.HeartbeatRequest) { b.Connection = 2 }); got.GetError() != nil {
		t.Errorf("heartbeat without stream: %v", got)
	}
}

func TestCleanStopSaysGoodbyeAndLeavesNothingRunning(t *testing.T) {
	before := goleak.IgnoreCurrent()
	r := start(t, oneServer(t))
	c := r.open()
	c.must(create("/a", ""))
	beats, err := r.coord().Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	r.stop()
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the stop took %s", took)
	}
	if e := c.end(); e.GetCode() != coordpb.Code_CODE_SHUTTING_DOWN {
		t.Errorf("the stream ended with %v, %v", e, c.endErr)
	}
	if _, err := beats.Recv(); err == nil {
		t.Error("the heartbeat stream goes on")
	}
	if _, err := r.coord().Read(context.Background(), &coordpb.ReadRequest{Read: get("/")}); err == nil {
		t.Error("still serving")
	}
	r.conn.Close()
	goleak.VerifyNone(t, before)
}

func TestStateSurvivesARestart(t *testing.T) {
	cfg := oneServer(t)
	r := start(t, cfg)
	c := r.open()
	c.must(create("/a", "kept"))
	c.must(ephemeral("/e"))
	r.stop()
	r = start(t, cfg)
	c2 := r.attach(c, 2)
	wantCode(t, c2.welcome.GetError(), coordpb.Code_CODE_OK)
	if got := c2.read(get("/a")); string(got.GetRead().GetData()) != "kept" {
		t.Errorf("after the restart: %v", got)
	}
	if got := c2.read(get("/e")); got.GetError() != nil {
		t.Errorf("the ephemeral went with the server: %v", got)
	}
	c2.seq = 1
	if again := c2.must(ephemeral("/e")); again.GetResults()[0].GetPath() != "/e" {
		t.Errorf("offered again: %v", again)
	}
}
