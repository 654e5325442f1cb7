package test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/testcerts"
)

func TestProbeTLS(t *testing.T) {
	skipIfShort(t)
	start := time.Now()
	s := startSecured(t, 3, "tls: {clients: require}\n")
	t.Log("ready after", time.Since(start))
	c := s.dial("alice")
	if _, err := c.Create(t.Context(), "/a", nil); err != nil {
		t.Fatal(err)
	}
	other := testcerts.New(t, "x")
	for name, opt := range map[string]client.Option{
		"plain":   client.WithReads(client.Linearizable),
		"nocert":  client.WithTLS(s.as("")),
		"foreign": client.WithTLS(&tls.Config{RootCAs: s.ca.Pool(), Certificates: []tls.Certificate{other.Pair(t, "alice", testcerts.ClientOnly)}}),
		"wrongca": client.WithTLS(&tls.Config{RootCAs: other.Pool(), Certificates: s.as("alice").Certificates}),
		"expired": client.WithTLS(&tls.Config{RootCAs: s.ca.Pool(), Certificates: []tls.Certificate{s.ca.Pair(t, "alice", testcerts.Expired)}}),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		start := time.Now()
		_, err := client.Dial(ctx, s.target(), opt)
		t.Log(name, time.Since(start), err)
		cancel()
	}
	for _, f := range []bool{false} {
		_ = f
		t.Log(s.nodes[0].fetch(s.as("alice"), "/readyz?verbose"))
		t.Log(s.nodes[0].fetch(s.as(""), "/readyz?verbose"))
	}
}
