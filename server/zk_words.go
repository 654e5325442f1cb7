package server

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/znode"
)

// Versions that clients look for. kazoo wants a dotted number, go-zookeeper a date
// in this very form. The date means nothing: builds are reproducible.
const (
	zkVersion = "3.8.0-coordd"
	zkBuilt   = "01/01/2026 00:00 GMT"
)

// defaultWords are answered unless the configuration says otherwise: they tell of
// the server itself, and of nobody's data.
var defaultWords = []string{"ruok", "srvr", "isro"}

// words answers the four-letter words: requests for people and monitors, sent in
// place of a frame's length. Each is answered in one piece, since clients read it
// with one call.
type words struct {
	s       *Server
	allowed []string
	known   map[string]func(*strings.Builder)
	stats   zkStats
}

func newWords(s *Server, allowed []string) *words {
	if allowed == nil {
		allowed = defaultWords
	}
	w := &words{s: s, allowed: allowed}
	w.stats.reset()
	w.known = map[string]func(*strings.Builder){
		"ruok": func(b *strings.Builder) { b.WriteString("imok") },
		"srvr": w.srvr, "stat": w.stat, "mntr": w.mntr, "conf": w.conf, "envi": w.envi, "cons": w.cons, "dump": w.dump,
		"wchs": w.wchs, "wchp": w.wchp, "wchc": w.wchc, "isro": w.isro, "dirs": w.dirs,
		"srst": func(b *strings.Builder) { w.stats.reset(); b.WriteString("Server stats reset.\n") },
	}
	return w
}

// answer is the answer to a word, false if it is none.
func (w *words) answer(word string) (string, bool) {
	f, ok := w.known[word]
	if !ok {
		return "", false
	}
	if !w.allows(word) {
		return word + " is not executed because it is not in the whitelist.\n", true
	}
	var b strings.Builder
	f(&b)
	return b.String(), true
}

func (w *words) allows(word string) bool {
	return slices.Contains(w.allowed, word) || slices.Contains(w.allowed, "*")
}

// serveHTTP is GET /commands/{word}, where ZooKeeper's admin server has it: the same
// words, the same white list, the same text.
func (w *words) serveHTTP(rw http.ResponseWriter, r *http.Request) {
	if w.s.zkListener == nil {
		http.NotFound(rw, r)
		return
	}
	word := r.PathValue("word")
	answer, ok := w.answer(word)
	if !ok {
		http.NotFound(rw, r)
		return
	}
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	rw.Header().Set("Cache-Control", "no-store")
	if !w.allows(word) {
		rw.WriteHeader(http.StatusForbidden)
	}
	_, _ = io.WriteString(rw, answer) // the client has gone
}

// zkStats count what the words tell of. Latencies are those of the ZooKeeper port
// since the start, or since srst.
type zkStats struct {
	received, sent    atomic.Uint64
	requests, total   atomic.Int64 // of answered requests; ns
	shortest, longest atomic.Int64 // ns
}

func (z *zkStats) reset() {
	z.received.Store(0)
	z.sent.Store(0)
	z.requests.Store(0)
	z.total.Store(0)
	z.longest.Store(0)
	z.shortest.Store(int64(time.Hour))
}

func (z *zkStats) observe(d time.Duration) {
	n := int64(d)
	z.requests.Add(1)
	z.total.Add(n)
	for have := z.longest.Load(); n > have && !z.longest.CompareAndSwap(have, n); have = z.longest.Load() {
	}
	for have := z.shortest.Load(); n < have && !z.shortest.CompareAndSwap(have, n); have = z.shortest.Load() {
	}
}

// latencies are in milliseconds.
func (z *zkStats) latencies() (low, mean, high float64) {
	n := z.requests.Load()
	if n == 0 {
		return 0, 0, 0
	}
	ms := func(ns int64) float64 { return float64(ns) / float64(time.Millisecond) }
	return ms(z.shortest.Load()), ms(z.total.Load()) / float64(n), ms(z.longest.Load())
}

// zkConns are the connections of the ZooKeeper port that have a session, by
// address.
func (w *words) zkConns() (out []*zkConn) {
	for _, st := range w.s.hub.streams() {
		if c, ok := st.(*zkConn); ok {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *zkConn) int { return strings.Compare(a.guest.address, b.guest.address) })
	return out
}

// mode is the server's role as ZooKeeper calls it, "" if it serves nobody.
func (w *words) mode() string {
	st := w.s.cluster.Status()
	switch {
	case w.s.cfg.ZooKeeper.ReadOnly && w.s.cutOff():
		return "read-only"
	case !st.Formed || st.Leader == "":
		return ""
	case st.Servers == 1:
		return "standalone"
	case st.Leading:
		return "leader"
	case !st.Voter:
		return "observer"
	default:
		return "follower"
	}
}

const notServing = "This ZooKeeper instance is not currently serving requests\n"

func (w *words) outstanding() (n int) {
	for _, c := range w.zkConns() {
		n += c.waiting()
	}
	return n
}

func (w *words) srvr(b *strings.Builder) {
	if w.mode() == "" {
		b.WriteString(notServing)
		return
	}
	w.version(b)
	w.figures(b)
}

func (w *words) version(b *strings.Builder) {
	fmt.Fprintf(b, "Zookeeper version: %s, built on %s\n", zkVersion, zkBuilt)
}

func (w *words) figures(b *strings.Builder) {
	low, mean, high := w.stats.latencies()
	nodes := 0
	w.s.machine.View(func(v *fsm.View) { nodes = v.Tree.Counts().Nodes })
	fmt.Fprintf(b, "Latency min/avg/max: %.0f/%.4f/%.0f\nReceived: %d\nSent: %d\nConnections: %d\nOutstanding: %d\nZxid: %s\nMode: %s\nNode count: %d\n",
		low, mean, high, w.stats.received.Load(), w.stats.sent.Load(), w.s.zkListener.count(), w.outstanding(), zkZxid(w.s), w.mode(), nodes)
}

func zkZxid(s *Server) string { return fmt.Sprintf("0x%x", uint64(s.machine.Zxid())) }

func (w *words) stat(b *strings.Builder) {
	if w.mode() == "" {
		b.WriteString(notServing)
		return
	}
	w.version(b)
	b.WriteString("Clients:\n")
	for _, c := range w.zkConns() {
		fmt.Fprintf(b, " /%s[1](queued=%d,recved=%d,sent=%d)\n", c.guest.address, c.waiting(), c.received.Load(), c.sent.Load())
	}
	b.WriteString("\n")
	w.figures(b)
}

func (w *words) cons(b *strings.Builder) {
	for _, c := range w.zkConns() {
		id, _, timeout := c.bound()
		fmt.Fprintf(b, " /%s[1](queued=%d,recved=%d,sent=%d,sid=0x%x,lop=NA,est=%d,to=%d,lcxid=0x%x,lzxid=%s,lresp=0,llat=0,minlat=0,avglat=0,maxlat=0)\n",
			c.guest.address, c.waiting(), c.received.Load(), c.sent.Load(), uint64(id), c.since.UnixMilli(), timeout.Milliseconds(),
			uint32(c.lastXid.Load()), zkZxid(w.s))
	}
	b.WriteString("\n")
}

func (w *words) mntr(b *strings.Builder) {
	mode := w.mode()
	if mode == "" {
		b.WriteString(notServing)
		return
	}
	low, mean, high := w.stats.latencies()
	var counts znode.Counts
	sessions := 0
	w.s.machine.View(func(v *fsm.View) { counts, sessions = v.Tree.Counts(), v.Sessions.Len() })
	put := func(key string, value any) { fmt.Fprintf(b, "zk_%s\t%v\n", key, value) }
	put("version", zkVersion+", built on "+zkBuilt)
	put("server_state", mode)
	put("peer_state", cmp.Or(map[string]string{"leader": "leading - broadcast", "follower": "following - broadcast", "observer": "observing - broadcast"}[mode], mode))
	put("min_latency", fmt.Sprintf("%.0f", low))
	put("avg_latency", fmt.Sprintf("%.4f", mean))
	put("max_latency", fmt.Sprintf("%.0f", high))
	put("packets_received", w.stats.received.Load())
	put("packets_sent", w.stats.sent.Load())
	put("num_alive_connections", w.s.zkListener.count())
	put("outstanding_requests", w.outstanding())
	put("znode_count", counts.Nodes)
	put("watch_count", w.s.hub.watchCount())
	put("ephemerals_count", counts.Kinds[znode.Ephemeral])
	put("approximate_data_size", counts.DataBytes+counts.NameBytes)
	put("global_sessions", sessions)
	put("connection_drop_count", w.s.zkListener.refused.Load())
	put("uptime", time.Since(w.s.started).Milliseconds())
	if mode == "leader" {
		put("synced_followers", w.syncedFollowers())
	}
}

// syncedFollowers is the number of the other servers that are ready.
func (w *words) syncedFollowers() (n int) {
	for _, m := range w.s.members.Load().Members {
		if m.Ready && m.Name != w.s.cfg.Cluster.Name {
			n++
		}
	}
	return n
}

func (w *words) conf(b *strings.Builder) {
	s := w.s
	_, port, _ := net.SplitHostPort(s.zkListener.Addr().String())
	fmt.Fprintf(b, "clientPort=%s\nsecureClientPort=%s\ndataDir=%s\ntickTime=%d\nmaxClientCnxns=%d\nminSessionTimeout=%d\nmaxSessionTimeout=%d\nserverId=%d\n",
		port, securePort(s, port), s.cfg.Cluster.DataDir, s.cfg.Session.Min.Milliseconds()/2, s.limits.ConnectionsPerAddress,
		s.cfg.Session.Min.Milliseconds(), s.cfg.Session.Max.Milliseconds(), serverNumber(s.cfg.Cluster.Peers, s.cfg.Cluster.Name))
}

// securePort is the port for TLS: one of its own, the same one, or none.
func securePort(s *Server, port string) string {
	switch {
	case s.zkSecure != nil:
		_, own, _ := net.SplitHostPort(s.zkSecure.Addr().String())
		return own
	case s.tls == nil:
		return "-1"
	default:
		return port
	}
}

func (w *words) envi(b *strings.Builder) {
	host, _ := os.Hostname()
	fmt.Fprintf(b, "Environment:\nzookeeper.version=%s, built on %s\nhost.name=%s\ncoordd.version=%s\ngo.version=%s\nos.name=%s\nos.arch=%s\n",
		zkVersion, zkBuilt, host, w.s.cfg.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func (w *words) isro(b *strings.Builder) {
	switch {
	case w.s.cfg.ZooKeeper.ReadOnly && w.s.cutOff():
		b.WriteString("ro")
	case w.mode() == "":
		b.WriteString("null")
	default:
		b.WriteString("rw")
	}
}

func (w *words) dirs(b *strings.Builder) {
	use := w.s.cluster.DiskUse()
	fmt.Fprintf(b, "datadir_size: %d\nlogdir_size: %d\n", use.Snapshot, use.Store)
}
