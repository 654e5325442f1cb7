package test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/coordd/coord/internal/testcerts"
)

// badPairKeepsTheOldOne gives a server a key that is not its certificate's.
func (s *secured) badPairKeepsTheOldOne(t *testing.T) {
	p, f := s.nodes[0], s.files[s.nodes[0]]
	before, err := served(t.Context(), p.grpc(), s.as(superuser))
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(f.Key)
	if err != nil {
		t.Fatal(err)
	}
	_, bad := s.ca.Issue(t, p.name, testcerts.Both)
	testcerts.Put(t, f.Key, bad)
	p.reload()
	poll(t, 20*time.Second, "the failure is counted", func() error {
		if n, err := s.metric(p, "coord_tls_reload_failures_total"); err != nil || n != "1" {
			return fmt.Errorf("%s failures, %w", n, err)
		}
		return nil
	})
	for port, address := range p.ports() {
		now, err := served(t.Context(), address, s.as(superuser))
		if err != nil || !now.Equal(before) {
			t.Errorf("%s port serves another certificate, %v", port, err)
		}
	}
	testcerts.Put(t, f.Key, good)
	if text, _ := os.ReadFile(p.log()); !strings.Contains(string(text), "tls_reload_failed") || !strings.Contains(string(text), f.Key) {
		t.Error("the log does not say which files do not fit")
	}
}

// authorityIsReplaced does it as an operator would: both authorities in the
// bundles, then certificates of the new one, then the old one out.
func (s *secured) authorityIsReplaced(t *testing.T, show func(*testcerts.Authority)) {
	old, next := s.ca, s.next
	s.bundle(t, testcerts.Bundle(old, next))
	newClient := s.showing(next.Pair(t, superuser, testcerts.ClientOnly))
	s.everywhere(t, "clients of the new authority are let in", func(port, address string) error { return accepted(port, address, newClient) })
	for _, p := range s.nodes {
		cert, key := next.Issue(t, p.name, testcerts.Both)
		testcerts.Put(t, s.files[p].Key, key)
		testcerts.Put(t, s.files[p].Cert, cert)
		p.reload()
	}
	s.everywhere(t, "certificates of the new authority are served", func(_, address string) error {
		cert, err := served(t.Context(), address, newClient)
		if err == nil && cert.Issuer.CommonName != next.Cert.Subject.CommonName {
			err = fmt.Errorf("signed by %s", cert.Issuer.CommonName)
		}
		return err
	})
	show(next)
	s.creds = credentials.NewTLS(newClient)
	s.bundle(t, testcerts.Bundle(next))
	oldClient := s.showing(old.Pair(t, superuser, testcerts.ClientOnly))
	s.everywhere(t, "clients of the old authority are refused", func(_, address string) error {
		if err := refusal(address, oldClient); err == nil || !strings.Contains(err.Error(), "unknown certificate authority") {
			return fmt.Errorf("it answers %w", err)
		}
		return nil
	})
	s.ca, s.next = next, old
	s.waitReady(20 * time.Second)
}

func (s *secured) bundle(t *testing.T, pem []byte) {
	for _, p := range s.nodes {
		testcerts.Put(t, s.files[p].CA, pem)
		p.reload()
	}
}

// everywhere polls each port of each server.
func (s *secured) everywhere(t *testing.T, what string, check func(port, address string) error) {
	t.Helper()
	for _, p := range s.nodes {
		for port, address := range p.ports() {
			poll(t, 20*time.Second, what+", "+p.name+" "+port, func() error { return check(port, address) })
		}
	}
}
