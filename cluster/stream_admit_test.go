package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net"
	"strings"
	"testing"
)

func TestOnlyServersAreAdmittedAsPeers(t *testing.T) {
	const server, client = x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	for _, tc := range []struct {
		name  string
		uses  []x509.ExtKeyUsage
		other []asn1.ObjectIdentifier
		admit bool
	}{
		{"server and client", []x509.ExtKeyUsage{server, client}, nil, true},
		{"unrestricted", nil, nil, true},
		{"any", []x509.ExtKeyUsage{client, x509.ExtKeyUsageAny}, nil, true},
		{"client", []x509.ExtKeyUsage{client}, nil, false},
		{"client, and something unknown", []x509.ExtKeyUsage{client}, []asn1.ObjectIdentifier{{1, 2, 3}}, false},
		{"something unknown", nil, []asn1.ObjectIdentifier{{1, 2, 3}}, false},
	} {
		leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "ops"}, ExtKeyUsage: tc.uses, UnknownExtKeyUsage: tc.other}
		err := admitServers(peerInfo{tls: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}})
		if (err == nil) != tc.admit {
			t.Errorf("%s: %v", tc.name, err)
		}
		if err != nil && (!strings.Contains(err.Error(), `"ops"`) || !strings.Contains(err.Error(), "serverAuth")) {
			t.Errorf("%s: %v does not say who and what is missing", tc.name, err)
		}
	}
	for _, state := range []*tls.ConnectionState{nil, {}, {VerifiedChains: [][]*x509.Certificate{{}}}} {
		if err := admitServers(peerInfo{addr: &net.TCPAddr{}, tls: state}); err == nil {
			t.Error("a peer that shows no certificate is admitted")
		}
	}
}
