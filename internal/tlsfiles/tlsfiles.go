// Package tlsfiles serves TLS configurations from files that may be replaced
// while the process runs. New handshakes use the newest files that fit
// together; connections that stand are left alone.
package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Files names the PEM files of one party. The zero value means "no TLS".
type Files struct {
	CA   string // certificates of the authorities that are trusted
	Cert string // own certificate, followed by its chain
	Key  string // its private key
}

// Zero reports whether no file is named.
func (f Files) Zero() bool { return f == Files{} }

// Validate says which file is missing from the set. A client may do without
// Cert and Key; a server (needCert) may not.
func (f Files) Validate(needCert bool) error {
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return errors.New("tls: cert and key must be set together")
	case needCert && f.Cert == "":
		return errors.New("tls: cert and key are needed to serve TLS")
	default:
		return nil
	}
}

// loaded is one consistent state of the files.
type loaded struct {
	raw  [3][]byte
	cert *tls.Certificate // nil without Cert
	pool *x509.CertPool   // nil without CA
}

// Source holds the newest good state of Files and looks for changes.
// It is safe for concurrent use.
type Source struct {
	files    Files
	log      *slog.Logger
	current  atomic.Pointer[loaded]
	failures atomic.Uint64
	wake     chan struct{} // has room for one: look now
	stop     chan struct{}
	done     chan struct{}
	once     sync.Once
}

// Open loads the files, which must succeed, and looks at them again at every
// interval (10 s if it is not positive). A later set that does not load or
// does not fit together is logged and counted, and the old one stays in use.
// The caller must Close the Source.
func Open(f Files, every time.Duration, log *slog.Logger) (*Source, error) {
	first, err := load(f)
	if err != nil {
		return nil, err
	}
	if every <= 0 {
		every = 10 * time.Second
	}
	s := &Source{files: f, log: log, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	s.current.Store(first)
	go s.watch(every)
	return s, nil
}

// Close stops looking at the files. It may be called twice; the
// configurations handed out go on working with the last state.
func (s *Source) Close() {
	s.once.Do(func() { close(s.stop) })
	<-s.done
}

// Look makes the Source look at the files soon instead of at the next interval.
// It does not wait.
func (s *Source) Look() {
	select {
	case s.wake <- struct{}{}:
	default: // it is about to look anyway
	}
}

// Failures counts the times new files were refused.
func (s *Source) Failures() uint64 { return s.failures.Load() }

// Expiry is when the certificate in use ends; zero without one.
func (s *Source) Expiry() time.Time {
	c := s.current.Load()
	if c.cert == nil {
		return time.Time{}
	}
	return c.cert.Leaf.NotAfter
}

// Server is a configuration for listeners. auth says what is asked of
// clients; their certificates are checked against the CA file in use at the
// time of the handshake. protos are the application protocols that the listener
// speaks (ALPN), best first; none if its protocol has no such name.
//
// Sessions are not resumed: every handshake shows and checks the certificates
// of its own time, and connections live too long for it to cost anything.
func (s *Source) Server(auth tls.ClientAuthType, protos ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protos,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := s.current.Load()
			if c.cert == nil {
				return nil, errors.New("tls: no certificate to serve with")
			}
			return &tls.Config{
				MinVersion:             tls.VersionTLS12,
				Certificates:           []tls.Certificate{*c.cert},
				ClientAuth:             auth,
				ClientCAs:              c.pool,
				NextProtos:             protos,
				SessionTicketsDisabled: true,
			}, nil
		},
	}
}

// Client is a configuration for one outgoing handshake: it holds the roots in
// use now, so ask again for each dial. An empty serverName is filled in by
// the dialer.
func (s *Source) Client(serverName string) *tls.Config {
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: serverName,
		RootCAs:    s.current.Load().pool,
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if c := s.current.Load(); c.cert != nil {
			return c.cert, nil
		}
		return &tls.Certificate{}, nil
	}
	return cfg
}

func (s *Source) watch(every time.Duration) {
	defer close(s.done)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var refused [3][]byte // the last bad state: it is reported once
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		case <-s.wake:
		}
		refused = s.look(refused)
	}
}

// look takes changed files into use and returns the state that was refused.
func (s *Source) look(refused [3][]byte) [3][]byte {
	raw, err := read(s.files)
	if err == nil && same(raw, s.current.Load().raw) {
		return [3][]byte{}
	}
	if err == nil && same(raw, refused) {
		return refused
	}
	var next *loaded
	if err == nil {
		next, err = parse(s.files, raw)
	}
	if err != nil {
		s.failures.Add(1)
		s.log.Error("new TLS files are refused, the old ones stay in use", "event", "tls_reload_failed", "err", err)
		return raw
	}
	s.current.Store(next)
	s.log.Info("TLS files are in use", "event", "tls_reloaded", "cert", s.files.Cert, "expires", s.Expiry())
	return [3][]byte{}
}

func same(a, b [3][]byte) bool {
	return bytes.Equal(a[0], b[0]) && bytes.Equal(a[1], b[1]) && bytes.Equal(a[2], b[2])
}

func load(f Files) (*loaded, error) {
	raw, err := read(f)
	if err != nil {
		return nil, err
	}
	return parse(f, raw)
}

func read(f Files) (raw [3][]byte, err error) {
	for i, name := range []string{f.CA, f.Cert, f.Key} {
		if name == "" {
			continue
		}
		if raw[i], err = os.ReadFile(name); err != nil {
			return raw, fmt.Errorf("tls: %w", err)
		}
	}
	return raw, nil
}

func parse(f Files, raw [3][]byte) (*loaded, error) {
	l := &loaded{raw: raw}
	if f.CA != "" {
		l.pool = x509.NewCertPool()
		if !l.pool.AppendCertsFromPEM(raw[0]) {
			return nil, fmt.Errorf("tls: %s holds no PEM certificate", f.CA)
		}
	}
	if f.Cert != "" {
		cert, err := tls.X509KeyPair(raw[1], raw[2])
		if err != nil {
			return nil, fmt.Errorf("tls: %s and %s do not fit together: %w", f.Cert, f.Key, err)
		}
		l.cert = &cert
	}
	return l, nil
}
