package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/internal/tlsfiles"
	"github.com/coordd/coord/server"
)

// checkServer names the mistakes that only the server's own packages find in c,
// whose settings were checked by validate before. Each of the packages names its
// first mistake. That this server is not in the list comes last: the file may be
// checked on another machine.
func checkServer(c *Config) error {
	peers, peersErr := parsePeers(c.Cluster.Peers)
	observers, observersErr := parseServers("cluster.observers", c.Cluster.Observers)
	self, selfErr := findSelf(c.Node.Name, slices.Concat(peers, observers))
	if len(peers) == 0 {
		peers, selfErr = []cluster.Peer{{Name: "n1", Address: "127.0.0.1:7421"}}, nil
		self = peers[0]
	}
	if selfErr != nil {
		self = peers[0]
	}
	repaired := repair(*c)
	sc := serverConfigAs(&repaired, self, peers, discardLogger())
	return errors.Join(peersErr, observersErr, validateParts(sc), selfErr)
}

// repair gives settings that are known to be wrong their defaults, so that they
// do not hide, or repeat, what else is wrong.
func repair(c Config) Config {
	d := defaultConfig()
	wrong, defaults := c.mistakes(), settingsOf(&d)
	for i, s := range settingsOf(&c) {
		for _, m := range wrong {
			if s.name == m.name || strings.HasPrefix(s.name, m.name+".") {
				s.value.Set(defaults[i].value)
			}
		}
	}
	return c
}

// validateParts checks each part of a configuration with the others left out, as
// the check of the whole ends with its first mistake.
func validateParts(sc server.Config) error {
	secured := sc
	secured.Limits = server.Limits{}
	addresses := secured
	if !addresses.TLS.Zero() {
		addresses.TLS, addresses.Insecure = tlsfiles.Files{}, true
	}
	var errs []error
	said := map[string]bool{}
	for _, err := range []error{sc.Validate(), secured.Validate(), addresses.Validate(), sc.Limits.Validate(), sc.Cluster.Validate()} {
		if err != nil && !said[err.Error()] {
			said[err.Error()] = true
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
