package zoocfg

import (
	"fmt"
	"path"
	"strings"
)

// secure decides whether and how ports speak TLS. One certificate serves all ports
// of a server, those to other servers too.
func (c *converter) secure() {
	quorum, quorumFrom := c.flag("sslQuorum", false)
	unified, unifiedFrom := c.flag("client.portUnification", false)
	clients, servers := c.stores("ssl."), c.stores("ssl.quorum.")
	wanted := c.secureClient != "" || unified || quorum
	if !wanted {
		for _, e := range append(clients.all(), servers.all()...) {
			c.note(e, "nothing here asks for TLS: neither secureClientPort, client.portUnification nor sslQuorum is set")
		}
		c.plain()
		return
	}
	if quorum && (c.secureClient != "" || unified) && !servers.same(clients) {
		c.refuse(quorumFrom, "one certificate and one list of authorities serve all ports here; ssl.quorum.* says something else than ssl.*")
	}
	use, from := clients, unifiedFrom
	if c.secureClient == "" && !unified {
		use, from = servers, quorumFrom
	}
	if c.secureClient != "" {
		from = c.rule("secureClientPort")
	}
	c.certificate(use, from)
	c.clientCertificates()
	if c.client == "" {
		c.setOwn("listen.zookeeper", c.secureClient, c.rule("secureClientPort"))
		return
	}
	c.setOwn("listen.zookeeper", c.client, c.rule("clientPort"))
	c.set("zookeeper.plaintext", "true", c.rule("clientPort takes clients without TLS, too"))
	if c.secureClient != "" {
		c.setOwn("listen.zookeeper_tls", c.secureClient, c.rule("secureClientPort"))
	}
}

// plain is for servers without TLS. ZooKeeper's are open to the network, and
// everybody administers them.
func (c *converter) plain() {
	c.setOwn("listen.zookeeper", c.client, c.rule("clientPort"))
	c.set("insecure", "true", c.rule("nothing asks for TLS"))
}

// stores are the key and trust store of one kind of port.
type stores struct {
	prefix                       string
	key, trust, keyKind, trustOf Entry
}

func (s stores) all() (out []Entry) {
	for _, e := range []Entry{s.key, s.trust, s.keyKind, s.trustOf} {
		if e.Line > 0 {
			out = append(out, e)
		}
	}
	return out
}

// same says whether other is the same, or says nothing.
func (s stores) same(other stores) bool {
	same := func(a, b string) bool { return a == "" || b == "" || a == b }
	return same(s.key.Value, other.key.Value) && same(s.trust.Value, other.trust.Value)
}

func (c *converter) stores(prefix string) stores {
	s := stores{prefix: prefix}
	s.key, _ = c.take(prefix + "keyStore.location")
	s.trust, _ = c.take(prefix + "trustStore.location")
	s.keyKind, _ = c.take(prefix + "keyStore.type")
	s.trustOf, _ = c.take(prefix + "trustStore.type")
	for _, store := range []string{"keyStore", "trustStore"} {
		for _, key := range []string{".password", ".passwordPath"} {
			if e, ok := c.take(prefix + store + key); ok {
				c.note(e, "PEM files are read without a password; a key that is encrypted is not read")
			}
		}
	}
	return s
}

// certificate sets the files of TLS.
func (c *converter) certificate(s stores, from Entry) {
	if s.key.Value == "" {
		c.refuse(from, "it asks for TLS, and there is no "+s.prefix+"keyStore.location")
		return
	}
	if s.trust.Value == "" {
		c.refuse(from, "the authorities to trust have to be named: "+s.prefix+"trustStore.location")
		return
	}
	keyOK, trustOK := c.pem(s.key, s.keyKind), c.pem(s.trust, s.trustOf)
	if !keyOK || !trustOK {
		return
	}
	c.set("tls.ca", s.trust.Value, s.trust)
	c.set("tls.cert", s.key.Value, s.key)
	c.set("tls.key", s.key.Value, s.key)
	c.note(s.key, "this certificate serves all ports: those of gRPC, of HTTP and between servers have TLS, too")
}

// pem refuses stores of other forms than PEM, as their type says it or else their
// name, which is how ZooKeeper finds it.
func (c *converter) pem(store, kind Entry) bool {
	form := strings.ToUpper(kind.Value)
	if form == "" {
		form = map[string]string{".jks": "JKS", ".pem": "PEM", ".p12": "PKCS12", ".bcfks": "BCFKS"}[path.Ext(store.Value)]
	}
	if form == "PEM" {
		return true
	}
	if form == "" {
		form = "of an unknown kind"
	}
	c.refuse(store, fmt.Sprintf("certificates are read from PEM files, and this is %s: convert it with keytool -importkeystore to PKCS12, and that with openssl pkcs12 -nodes", form))
	return false
}

// clientCertificates says what is asked of clients. ZooKeeper asks for a
// certificate unless it is told otherwise.
func (c *converter) clientCertificates() {
	e, ok := c.take("ssl.clientAuth")
	if !ok {
		e = c.rule("ZooKeeper's default of ssl.clientAuth")
	}
	switch strings.ToLower(e.Value) {
	case "", "need":
		c.set("tls.clients", "require", e)
	case "want":
		c.set("tls.clients", "verify-if-given", e)
	case "none":
		c.set("tls.clients", "none", e)
	default:
		c.refuse(e, "this is none of none, want and need")
	}
}
