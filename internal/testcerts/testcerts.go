// Package testcerts is a certificate authority for tests. Its certificates are
// good for loopback, live for a few hours and are of no use elsewhere.
//
// An Authority may be used from any goroutine. Every function fails the test it
// is given instead of returning an error.
package testcerts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority of its own. Two of one name trust each other no more
// than two of different names.
func New(t testing.TB, name string) *Authority {
	t.Helper()
	key := newKey(t)
	tmpl := template(t, name)
	tmpl.IsCA, tmpl.BasicConstraintsValid, tmpl.KeyUsage = true, true, x509.KeyUsageCertSign
	return &Authority{parse(t, sign(t, tmpl, tmpl, key, key)), key}
}

// Pool trusts this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.Cert)
	return p
}

// Use says what a certificate is good for.
type Use uint8

const (
	// Both is what a server of a cluster needs: it is called and calls.
	Both Use = iota
	// ClientOnly is what a user of the cluster needs.
	ClientOnly
	// ServerOnly is good for being called, not for calling.
	ServerOnly
	// Expired is Both, but its time is over.
	Expired
)

// Issue signs a certificate with the common name cn, valid for loopback, and
// returns it with its private key as PEM.
func (a *Authority) Issue(t testing.TB, cn string, use Use) (cert, key []byte) {
	t.Helper()
	tmpl := template(t, cn)
	if use != ClientOnly {
		tmpl.DNSNames = []string{"localhost"}
		tmpl.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
		tmpl.ExtKeyUsage = append(tmpl.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if use != ServerOnly {
		tmpl.ExtKeyUsage = append(tmpl.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	if use == Expired {
		tmpl.NotAfter = time.Now().Add(-time.Minute)
	}
	k := newKey(t)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return block("CERTIFICATE", sign(t, tmpl, a.Cert, k, a.key)), block("PRIVATE KEY", der)
}

// Pair is Issue in the form that crypto/tls takes.
func (a *Authority) Pair(t testing.TB, cn string, use Use) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(a.Issue(t, cn, use))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// Bundle is the PEM of several authorities, to trust them all.
func Bundle(as ...*Authority) (out []byte) {
	for _, a := range as {
		out = append(out, block("CERTIFICATE", a.Cert.Raw)...)
	}
	return out
}

// Files are the paths of one party's PEM files.
type Files struct{ CA, Cert, Key string }

// In names the files of a directory. Nothing is written.
func In(dir string) Files {
	return Files{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
}

// Write puts the authority's own certificate, and a new one of that name with
// its key, into the files.
func (a *Authority) Write(t testing.TB, f Files, cn string, use Use) {
	t.Helper()
	cert, key := a.Issue(t, cn, use)
	Put(t, f.CA, Bundle(a))
	Put(t, f.Key, key)
	Put(t, f.Cert, cert)
}

// Put replaces a file at once: who reads it meanwhile gets the old one or the
// new one.
func Put(t testing.TB, name string, content []byte) {
	t.Helper()
	next := name + ".next"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, name); err != nil {
		t.Fatal(err)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func template(t testing.TB, cn string) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: cn},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(3 * time.Hour),
	}
}

func sign(t testing.TB, tmpl, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func parse(t testing.TB, der []byte) *x509.Certificate {
	t.Helper()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
