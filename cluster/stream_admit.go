package cluster

import (
	"crypto/x509"
	"fmt"
	"slices"
)

// admitServers lets in only peers whose certificate is a server's. Clients of
// the cluster have certificates of the same authority, and without this each of
// them could pass for a server: send Raft messages, join, report sessions. A
// server's certificate is told from a client's by its extended key usage, which
// the other servers insist on anyway when they dial it. One without any such
// restriction passes, as everywhere.
func admitServers(p peerInfo) error {
	if p.tls == nil || len(p.tls.VerifiedChains) == 0 || len(p.tls.VerifiedChains[0]) == 0 {
		return fmt.Errorf("%s shows no certificate that was verified", p.addr)
	}
	leaf := p.tls.VerifiedChains[0][0]
	unrestricted := len(leaf.ExtKeyUsage) == 0 && len(leaf.UnknownExtKeyUsage) == 0
	if unrestricted || slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) || slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageAny) {
		return nil
	}
	return fmt.Errorf("certificate %.64q is a client's: its extended key usage has no serverAuth", leaf.Subject.CommonName)
}
