package server

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coord/api/coordpb"
)

// samples is what a scrape gave: values by name and labels, as they are written.
type samples map[string]float64

func (r *running) scrape() samples {
	r.t.Helper()
	code, body := r.httpGet("/metrics")
	if code != 200 {
		r.t.Fatalf("%d %s", code, body)
	}
	out := samples{}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			r.t.Fatalf("%q: %v", line, err)
		}
		out[line[:at]] = v
	}
	return out
}

// series lists what stands between the braces of a metric, in order.
func (s samples) series(name string) (out []string) {
	for k := range s {
		if labels, ok := strings.CutPrefix(k, name+"{"); ok {
			out = append(out, strings.TrimSuffix(labels, "}"))
		}
	}
	slices.Sort(out)
	return out
}

// An alert on a series that is not there yet never fires, and the first increase
// of a counter that begins with it is never seen.
func TestEverySeriesIsThereBeforeAnythingHappens(t *testing.T) {
	r := start(t, oneServer(t))
	got := r.scrape()
	for name, want := range map[string]string{
		"coord_watch_events_total": `type="EVENT_ABSENT" type="EVENT_ACL_CHANGED" type="EVENT_CHANGED" type="EVENT_CHILDREN" ` +
			`type="EVENT_CREATED" type="EVENT_DELETED" type="EVENT_PRESENT" type="EVENT_RESYNC"`,
		"coord_raft_peers": `state="in_contact",suffrage="nonvoter" state="in_contact",suffrage="voter" state="lost",suffrage="nonvoter" ` +
			`state="lost",suffrage="voter" state="missing",suffrage="nonvoter"`,
		"coord_proposals_failed_total": `reason="again" reason="entry_failed" reason="gap" reason="gone" reason="malformed" ` +
			`reason="moved" reason="old_boot"`,
		"coord_tls_certificate_expiry_timestamp_seconds": `listener="grpc" listener="http" listener="peer"`,
	} {
		if have := strings.Join(got.series(name), " "); have != want {
			t.Errorf("%s has %s, want %s", name, have, want)
		}
	}
	if v := got[`coord_tls_certificate_expiry_timestamp_seconds{listener="grpc"}`]; !math.IsInf(v, 1) {
		t.Errorf("without a certificate it ends at %v", v)
	}
	for _, name := range []string{
		"coord_watch_lag_seconds_count", "coord_raft_snapshot_duration_seconds_count", "coord_raft_snapshot_size_bytes",
		"coord_tls_reload_failures_total", "coord_raft_last_contact_seconds", `coord_proposals_failed_total{reason="malformed"}`,
	} {
		if v, ok := got[name]; !ok || v != 0 {
			t.Errorf("%s is %v, %v before anything happened", name, v, ok)
		}
	}
	eventually(t, "the leader counts itself", func() bool {
		return r.scrape()[`coord_raft_peers{state="in_contact",suffrage="voter"}`] == 1
	})
}

func TestMetricsOfDiskAndWatchesFollowWhatHappens(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	c.must(create("/a", "x"))
	c.watch(&coordpb.Watch{Path: "/", Kind: coordpb.Watch_KIND_RECURSIVE})
	c.must(set("/a", "y"))
	if _, err := r.cluster.Snapshot(); err != nil {
		t.Fatal(err)
	}
	var got samples
	eventually(t, "the event is sent and the disk is measured", func() bool {
		got = r.scrape()
		return got["coord_watch_lag_seconds_count"] > 0 && got["coord_store_size_bytes"] > 0
	})
	if got["coord_raft_snapshot_duration_seconds_count"] != 1 || got["coord_raft_snapshot_size_bytes"] <= 0 {
		t.Errorf("%v snapshots, the last of %v bytes", got["coord_raft_snapshot_duration_seconds_count"], got["coord_raft_snapshot_size_bytes"])
	}
	if got["coord_store_free_bytes"] <= 0 {
		t.Error("no room is left")
	}
	if lag := got["coord_watch_lag_seconds_sum"]; lag <= 0 || lag > patience.Seconds() {
		t.Errorf("events took %v s", lag)
	}
}
