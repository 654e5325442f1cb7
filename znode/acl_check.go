package znode

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Schemes of identities and ACL entries.
const (
	schemeWorld  = "world"
	schemeAuth   = "auth"
	schemeDigest = "digest"
	schemeIP     = "ip"
	schemeX509   = "x509"
	schemeSASL   = "sasl"
	schemeSuper  = "super"
)

// Permits reports whether the list gives the caller one of the permissions. It
// is the one place that decides so; operations, reads, watches and admin calls
// all come here. An empty list, which only data of another origin can have,
// lets everybody do everything. A nil caller is nobody in particular.
func Permits(list []ACL, perms uint32, c *Caller) bool {
	if len(list) == 0 || c.privileged() {
		return true
	}
	for i := range list {
		if a := &list[i]; a.Perms&perms != 0 && c.is(a) {
			return true
		}
	}
	return false
}

// privileged reports whether the caller passes every check.
func (c *Caller) privileged() bool {
	if c == nil {
		return false
	}
	return c.Trusted || slices.ContainsFunc(c.Identities, func(id Identity) bool { return id.Scheme == schemeSuper })
}

// is reports whether an identity of the caller matches the entry.
func (c *Caller) is(a *ACL) bool {
	if a.Scheme == schemeWorld {
		return a.ID == "anyone"
	}
	if c == nil {
		return false
	}
	for _, id := range c.Identities {
		if id.Scheme != a.Scheme {
			continue
		}
		if id.ID == a.ID || a.Scheme == schemeIP && inRange(id.ID, a.ID) {
			return true
		}
	}
	return false
}

func inRange(address, of string) bool {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return false
	}
	p, err := parseRange(of)
	return err == nil && p.Contains(a.Unmap().WithZone(""))
}

// parseRange reads an address, or a range as in 10.0.0.0/8.
func parseRange(s string) (netip.Prefix, error) {
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return p, err
		}
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	return a.Prefix(a.BitLen())
}

// fixACL returns the list as it is stored for the caller: auth entries replaced
// by what the caller has proved, doubles dropped, the order kept. The error is
// [ErrInvalidACL] with the entry that is at fault.
func fixACL(list []ACL, c *Caller) ([]ACL, error) {
	if len(list) == 1 && list[0].Scheme == schemeWorld && list[0].ID == "anyone" {
		return list, nil // nearly every node
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: the list is empty", ErrInvalidACL)
	}
	fixed := make([]ACL, 0, len(list))
	for i, a := range list {
		if a.Scheme == schemeAuth {
			ids := c.authenticated()
			if len(ids) == 0 {
				return nil, fmt.Errorf("%w: auth is for a client that has authenticated", ErrInvalidACL)
			}
			for _, id := range ids {
				fixed = addACL(fixed, ACL{Perms: a.Perms, Scheme: id.Scheme, ID: id.ID})
			}
			continue
		}
		if fault := a.fault(); fault != "" {
			return nil, fmt.Errorf("%w: entry %d, scheme %q: %s", ErrInvalidACL, i+1, a.Scheme, fault)
		}
		fixed = addACL(fixed, a)
	}
	return fixed, nil
}

// ValidateACL returns an error that is [ErrInvalidACL] and names the entry at
// fault, unless a znode can have the list as it is: what a create or a set of the
// ACL would refuse, whoever asks. An entry of scheme auth is refused too, since it
// is never stored.
func ValidateACL(list []ACL) error {
	_, err := fixACL(list, nil)
	return err
}

func addACL(list []ACL, a ACL) []ACL {
	if slices.Contains(list, a) {
		return list
	}
	return append(list, a)
}

// authenticated returns the identities that stand for the scheme auth: an
// address is not one.
func (c *Caller) authenticated() []Identity {
	if c == nil {
		return nil
	}
	var ids []Identity
	for _, id := range c.Identities {
		switch id.Scheme {
		case schemeDigest, schemeX509, schemeSASL:
			ids = append(ids, id)
		}
	}
	return ids
}

// fault says why nobody could ever match the entry; "" is good.
func (a *ACL) fault() string {
	switch a.Scheme {
	case schemeWorld:
		if a.ID != "anyone" {
			return "the only id of world is anyone"
		}
	case schemeDigest:
		if _, hash, _ := strings.Cut(a.ID, ":"); hash == "" || strings.Contains(hash, ":") {
			return "want user:hash"
		}
	case schemeIP:
		if _, err := parseRange(a.ID); err != nil {
			return "want an address, or a range such as 10.0.0.0/8"
		}
	case schemeX509, schemeSASL:
		if a.ID == "" {
			return "the id is empty"
		}
	default:
		return "unknown scheme"
	}
	return ""
}

// maskACL returns the list as somebody without PermAdmin may see it: the hash
// of a digest is as good as a password to whoever wants to guess it.
func maskACL(list []ACL) []ACL {
	masked := slices.Clone(list)
	for i := range masked {
		if masked[i].Scheme == schemeDigest {
			user, _, _ := strings.Cut(masked[i].ID, ":")
			masked[i].ID = user + ":x"
		}
	}
	return masked
}
