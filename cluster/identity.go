package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Bounds of what stands in an identity. They bound the handshake too.
const (
	maxNameBytes      = 128
	incarnationDigits = 16 // 64 bits in hexadecimal
	maxServerIDBytes  = maxNameBytes + 1 + incarnationDigits
	clusterIDDigits   = 32 // 128 bits in hexadecimal
)

var (
	// errBadServerID is returned when a text is not "name~incarnation".
	errBadServerID = errors.New("not a server id (want name~16 hexadecimal digits)")
	// errBadClusterID is returned when a text is not a cluster id.
	errBadClusterID = errors.New("not a cluster id (want 32 hexadecimal digits)")
)

// serverID is "name~incarnation". It is at once the Raft id and the Raft
// address of a server. The name is what the operator wrote; the incarnation is
// 64 random bits made with the data directory, so that a server that lost its
// disk comes back as somebody else and cannot vote twice in one term. The zero
// value means "not known".
type serverID string

// newServerID returns the id of a new data directory of the server name.
func newServerID(name string) (serverID, error) {
	if err := validateName(name); err != nil {
		return "", err
	}
	var b [incarnationDigits / 2]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return serverID(name + "~" + hex.EncodeToString(b[:])), nil
}

// parseServerID checks that s is a server id.
func parseServerID(s string) (serverID, error) {
	name, incarnation, ok := strings.Cut(s, "~")
	if !ok || len(incarnation) != incarnationDigits || !isLowerHex(incarnation) {
		return "", fmt.Errorf("%q: %w", clip(s), errBadServerID)
	}
	if err := validateName(name); err != nil {
		return "", fmt.Errorf("%q: %w: %w", clip(s), errBadServerID, err)
	}
	return serverID(s), nil
}

// name is the part the operator chose; it is empty for the zero value.
func (s serverID) name() string {
	name, _, _ := strings.Cut(string(s), "~")
	return name
}

// validateName allows letters, digits and "._-", so that a name never needs
// quoting in an address, a file name, a metric label or a certificate.
func validateName(name string) error {
	if name == "" || len(name) > maxNameBytes {
		return fmt.Errorf("server name has %d bytes (want 1 to %d)", len(name), maxNameBytes)
	}
	for _, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("server name %q: only letters, digits and . _ - are allowed", name)
		}
	}
	return nil
}

// newClusterID returns the id of a new cluster: 128 random bits, so that two
// clusters of one name are never taken for one another.
func newClusterID() string {
	var b [clusterIDDigits / 2]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func validateClusterID(id string) error {
	if len(id) != clusterIDDigits || !isLowerHex(id) {
		return fmt.Errorf("%q: %w", clip(id), errBadClusterID)
	}
	return nil
}

func isLowerHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}

// clip keeps hostile text short in messages.
func clip(s string) string {
	if len(s) > maxServerIDBytes {
		return s[:maxServerIDBytes] + "..."
	}
	return s
}

// identity says who a data directory belongs to. One copy is kept in each of
// the three places that hold Raft state.
type identity struct {
	Format  int      `json:"format"` // identityFormat
	Server  serverID `json:"server"`
	Cluster string   `json:"cluster,omitempty"` // empty until the server belongs to a cluster
}

const identityFormat = 1

func (id identity) encode() []byte {
	b, err := json.Marshal(id)
	if err != nil {
		panic(fmt.Sprintf("identity %+v: %v", id, err)) // three plain fields cannot fail
	}
	return append(b, '\n')
}

func decodeIdentity(b []byte) (identity, error) {
	var id identity
	if err := json.Unmarshal(b, &id); err != nil {
		return identity{}, fmt.Errorf("identity: %w", err)
	}
	if id.Format != identityFormat {
		return identity{}, fmt.Errorf("identity has format %d, this program knows %d", id.Format, identityFormat)
	}
	if _, err := parseServerID(string(id.Server)); err != nil {
		return identity{}, fmt.Errorf("identity: %w", err)
	}
	if id.Cluster != "" {
		if err := validateClusterID(id.Cluster); err != nil {
			return identity{}, fmt.Errorf("identity: %w", err)
		}
	}
	return id, nil
}

func (id identity) String() string {
	if id.Cluster == "" {
		return string(id.Server) + " of no cluster"
	}
	return string(id.Server) + " of cluster " + id.Cluster
}
