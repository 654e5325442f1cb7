package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

const (
	httpHeaderTime  = 5 * time.Second
	httpRequestTime = 10 * time.Second
	httpIdleTime    = time.Minute
	httpHeaderBytes = 16 << 10
	httpConnections = 256
	// wedgedAfter is how long a lock that is held for moments may be held.
	wedgedAfter = 5 * time.Second
	// profileTime is what a CPU profile may take.
	profileTime = 2 * time.Minute
)

// newHTTP builds the server of health, metrics, ZooKeeper's words and profiles.
func (s *Server) newHTTP(tlsConfig *tls.Config) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.livez)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry(), promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: httpRequestTime, EnableOpenMetrics: true,
	}))
	mux.HandleFunc("GET /commands/{word}", s.words.serveHTTP)
	if s.cfg.Pprof {
		for path, h := range map[string]http.HandlerFunc{
			"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
			"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
		} {
			mux.Handle(path, s.adminOnly(h))
		}
	}
	return &http.Server{
		Handler: http.MaxBytesHandler(mux, 1<<10), TLSConfig: tlsConfig,
		ReadHeaderTimeout: httpHeaderTime, ReadTimeout: httpRequestTime, WriteTimeout: profileTime,
		IdleTimeout: httpIdleTime, MaxHeaderBytes: httpHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

func (s *Server) serveHTTP() error {
	if s.httpListener == nil {
		return nil
	}
	l := netutil.LimitListener(s.httpListener, httpConnections)
	if s.http.TLSConfig != nil {
		l = tls.NewListener(l, s.http.TLSConfig)
	}
	if err := s.http.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("HTTP port: %w", err)
	}
	return nil
}

func (s *Server) stopHTTP() {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // the process is ending
	}
}

// livez says that the process is not wedged. It never depends on a quorum, or a
// cluster without one would be restarted on top.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	for deadline := time.Now().Add(wedgedAfter); !s.hub.responsive(); time.Sleep(wedgedAfter / 100) {
		if time.Now().After(deadline) {
			http.Error(w, "the watch table has been locked for "+wedgedAfter.String(), http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ok")
}

// readyz says whether clients should come here; with ?verbose, why.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	st := s.cluster.Status()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if !st.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if !r.URL.Query().Has("verbose") {
		fmt.Fprintln(w, word(st.Ready, "ok", "not ready"))
		return
	}
	for _, c := range st.Checks {
		fmt.Fprintf(w, "[%s] %s: %s\n", word(c.OK, "+", "-"), c.Name, c.Detail)
	}
	fmt.Fprintln(w, word(st.Ready, "ready", "not ready"))
}

func word(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// adminOnly lets admins in: everybody without TLS, else the holders of a
// superuser's certificate.
func (s *Server) adminOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.auth.everybodyAdmin || s.auth.isSuperuser(certificateName(r.TLS)) {
			next.ServeHTTP(w, r)
			return
		}
		s.metrics.refused.Add(1)
		http.Error(w, "needs the certificate of a superuser", http.StatusForbidden)
	})
}
