package server

import (
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/session"
)

const (
	// maxAuths and maxCredentialBytes bound what one client may present.
	maxAuths           = 16
	maxCredentialBytes = 1024
	// authMetadata carries "scheme credential" for calls whose messages have
	// no place for it (the admin service).
	authMetadata = "coord-auth-bin"
)

// errAuth is returned for a credential that proves nothing.
var errAuth = errors.New("authentication failed")

// guest is who is at the other end of a call.
type guest struct {
	address    string // host:port
	host       string
	identities []session.Identity
	admin      bool // may use the admin service
}

// authenticator turns what a client presents into identities.
type authenticator struct {
	everybodyAdmin bool     // no TLS: loopback, or insecure by wish
	superusers     []string // common names of certificates
	superDigest    string   // "super:<hash>", empty for none
}

// guest collects the identities of the caller of ctx: its address, its
// certificate, and what auth proves. They do not depend on the order of auth.
func (a *authenticator) guest(ctx context.Context, auth []*coordpb.Auth) (guest, error) {
	var g guest
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		g = a.arrived(p.Addr, tlsState(p.AuthInfo))
	}
	if len(auth) > maxAuths {
		return guest{}, fmt.Errorf("%w: %d credentials, at most %d are looked at", errAuth, len(auth), maxAuths)
	}
	for _, c := range auth {
		if err := a.prove(&g, c.GetScheme(), c.GetCredential()); err != nil {
			return guest{}, err
		}
	}
	g.admin = a.everybodyAdmin || slices.Contains(g.identities, superIdentity)
	return g, nil
}

// arrived is who a connection shows by itself: its address, and its certificate.
func (a *authenticator) arrived(from net.Addr, state *tls.ConnectionState) guest {
	g := guest{address: from.String(), host: hostOf(from)}
	if ip := net.ParseIP(g.host); ip != nil {
		g.add(session.Identity{Scheme: "ip", ID: ip.String()})
	}
	if name := certificateName(state); name != "" {
		g.add(session.Identity{Scheme: "x509", ID: name})
		if a.isSuperuser(name) {
			g.add(superIdentity)
		}
	}
	return g
}

// caller is guest with the credentials taken from the metadata of the call.
func (a *authenticator) caller(ctx context.Context) (guest, error) {
	var auth []*coordpb.Auth
	for _, v := range metadata.ValueFromIncomingContext(ctx, authMetadata) {
		scheme, credential, _ := strings.Cut(v, " ")
		auth = append(auth, &coordpb.Auth{Scheme: scheme, Credential: []byte(credential)})
	}
	return a.guest(ctx, auth)
}

func (a *authenticator) isSuperuser(certificate string) bool {
	return certificate != "" && slices.Contains(a.superusers, certificate)
}

var superIdentity = session.Identity{Scheme: "super"}

func (g *guest) add(id session.Identity) {
	if !slices.Contains(g.identities, id) {
		g.identities = append(g.identities, id)
	}
}

// prove checks one credential. Schemes are ZooKeeper's: a digest never fails,
// it just names a user nobody else can name.
func (a *authenticator) prove(g *guest, scheme string, credential []byte) error {
	if len(credential) > maxCredentialBytes {
		return fmt.Errorf("%w: a credential has at most %d bytes", errAuth, maxCredentialBytes)
	}
	switch scheme {
	case "digest":
		id := digestIdentity(credential)
		g.add(session.Identity{Scheme: "digest", ID: id})
		if a.superDigest != "" && id == a.superDigest {
			g.add(superIdentity)
		}
		return nil
	case "ip", "x509":
		return nil // the connection says it, whatever is claimed
	}
	return fmt.Errorf("%w: scheme %.32q is not known (digest, ip and x509 are)", errAuth, scheme)
}

// digestIdentity is the id that a digest credential "user:password" proves:
// user:base64(sha1("user:password")), as in ZooKeeper, whose ACLs hold it.
func digestIdentity(credential []byte) string {
	user, _, _ := strings.Cut(string(credential), ":")
	sum := sha1.Sum(credential)
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// tlsState is that of a call's connection, nil without TLS.
func tlsState(info credentials.AuthInfo) *tls.ConnectionState {
	t, ok := info.(credentials.TLSInfo)
	if !ok {
		return nil
	}
	return &t.State
}

// certificateName is the common name of a verified client certificate, or empty.
func certificateName(s *tls.ConnectionState) string {
	if s == nil || len(s.VerifiedChains) == 0 || len(s.VerifiedChains[0]) == 0 {
		return ""
	}
	return s.VerifiedChains[0][0].Subject.CommonName
}
