package zoocfg

import (
	"strconv"
	"strings"
)

// access maps who may do what, and refuses what coordd would not check.
func (c *converter) access() {
	if e, ok := c.take("DigestAuthenticationProvider.superDigest"); ok {
		c.set("auth.super_digest", e.Value, e)
	}
	if e, ok := c.take("X509AuthenticationProvider.superUser"); ok {
		c.superuser(e)
	}
	for _, r := range refusals {
		e, ok := c.take(r.key)
		if !ok {
			continue
		}
		if r.harmless(e.Value) {
			c.note(e, "it is so here")
		} else {
			c.refuse(e, r.reason)
		}
	}
	for _, e := range c.taken("authProvider.") {
		c.provider(e)
	}
	if e, ok := c.take("ssl.authProvider"); ok {
		c.provider(e)
	}
}

// superuser takes the common name out of a distinguished one.
func (c *converter) superuser(e Entry) {
	for part := range strings.SplitSeq(e.Value, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if strings.EqualFold(name, "CN") && value != "" {
			c.set("auth.superusers", value, e)
			c.note(e, "certificates are told apart by their common name "+strconv.Quote(value)+" alone")
			return
		}
	}
	c.refuse(e, "superusers are named by the common name (CN) of their certificates")
}

func (c *converter) provider(e Entry) {
	name := e.Value[strings.LastIndex(e.Value, ".")+1:]
	switch name {
	case "X509AuthenticationProvider", "x509", "DigestAuthenticationProvider", "digest", "IPAuthenticationProvider", "ip":
		c.note(e, "it is always there")
	case "EnsembleAuthenticationProvider":
		c.note(e, "names of ensembles are not checked; servers know each other by an id of their cluster")
	default:
		c.refuse(e, "identities are those of digest, ip and x509; "+name+" is not known here")
	}
}

// refusals are keys that coordd would not honour in a way that matters to safety,
// unless their value is harmless.
var refusals = []struct {
	key      string
	harmless func(value string) bool
	reason   string
}{
	{"skipACL", unless("yes"), "ACLs are always checked here; clients that relied on it would be refused"},
	{"DigestAuthenticationProvider.digestAlg", isAny("SHA1", "SHA-1", ""), "digests are those of SHA-1, as ZooKeeper has them by default"},
	{"sessionRequireClientSASLAuth", unless("true"), "there is no SASL: clients that it keeps out would be let in"},
	{"enforce.auth.enabled", unless("true"), "clients without an identity would be let in; use TLS and tls.clients: require"},
	{"quorum.auth.enableSasl", unless("true"), "there is no SASL between servers: use TLS"},
	{"quorum.auth.serverRequireSasl", unless("true"), "there is no SASL between servers: use TLS"},
	{"quorum.auth.learnerRequireSasl", unless("true"), "there is no SASL between servers: use TLS"},
	{"ssl.crl", unless("true"), "revocation lists are not looked at"},
	{"ssl.ocsp", unless("true"), "nobody is asked for revoked certificates"},
	{"ssl.quorum.crl", unless("true"), "revocation lists are not looked at"},
	{"ssl.quorum.ocsp", unless("true"), "nobody is asked for revoked certificates"},
	{"oraclePath", isAny(""), "a majority of the servers decides, and no oracle"},
}

func unless(word string) func(string) bool {
	return func(value string) bool { return !strings.EqualFold(value, word) }
}

func isAny(words ...string) func(string) bool {
	return func(value string) bool {
		for _, w := range words {
			if strings.EqualFold(value, w) {
				return true
			}
		}
		return false
	}
}
