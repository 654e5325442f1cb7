package cluster

import (
	"errors"
	"strings"
	"testing"
)

func TestServerIDs(t *testing.T) {
	a, err := newServerID("n1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := newServerID("n1")
	if err != nil {
		t.Fatal(err)
	}
	if a == b || a.name() != "n1" || serverID("").name() != "" {
		t.Errorf("two incarnations are %q and %q, named %q", a, b, a.name())
	}
	if got, err := parseServerID(string(a)); err != nil || got != a {
		t.Errorf("parse %q: %q, %v", a, got, err)
	}
	for _, bad := range []string{
		"", "n1", "n1~", "~0123456789abcdef", "n1~0123456789abcde", "n1~0123456789abcdef0", "n1~0123456789ABCDEF",
		"n1~0123456789abcdeg", "n 1~0123456789abcdef", "n1~x~0123456789abcdef", strings.Repeat("n", 200) + "~0123456789abcdef",
	} {
		if got, err := parseServerID(bad); !errors.Is(err, errBadServerID) {
			t.Errorf("parse %q: %q, %v", bad, got, err)
		}
	}
	for _, bad := range []string{"", "a b", "a~b", "a/b", "a=b", "a,b", strings.Repeat("n", maxNameBytes+1), "ä"} {
		if _, err := newServerID(bad); err == nil {
			t.Errorf("name %q is allowed", bad)
		}
	}
}

func TestClusterIDs(t *testing.T) {
	if a, b := newClusterID(), newClusterID(); a == b || validateClusterID(a) != nil {
		t.Errorf("ids %q and %q", a, b)
	}
	for _, bad := range []string{"", "0123", strings.Repeat("g", clusterIDDigits), strings.Repeat("A", clusterIDDigits), strings.Repeat("0", 1000)} {
		if err := validateClusterID(bad); !errors.Is(err, errBadClusterID) || len(err.Error()) > 400 {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestIdentityText(t *testing.T) {
	id := identity{Format: identityFormat, Server: "n1~0123456789abcdef", Cluster: strings.Repeat("a", clusterIDDigits)}
	if got, err := decodeIdentity(id.encode()); err != nil || got != id {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{
		"", "{", "null", `{"format":2,"server":"n1~0123456789abcdef"}`, `{"format":1}`,
		`{"format":1,"server":"n1~0123456789abcdef","cluster":"x"}`,
	} {
		if got, err := decodeIdentity([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}
