package znode

import (
	"errors"
	"strings"
	"testing"
)

func TestWhichPathsAreValid(t *testing.T) {
	for _, p := range []string{
		"/", "/a", "/a/b", "/...", "/.a", "/a..", "/a b", "/ä/日本", "/~!@#$%^&*()", "/\u00a0", "/\uffef", "/\ufb00", "/a\u0020",
		"/" + strings.Repeat("x", maxNameBytes), "/zookeeper/config",
	} {
		if err := ValidatePath(p); err != nil {
			t.Errorf("%.40q: %v", p, err)
		}
	}
	for _, p := range []string{
		"", "a", "a/b", "//", "//a", "/a/", "/a//b", "/.", "/..", "/a/.", "/a/../b", "/\x00", "/a\x1f", "/\x7f", "/\u0080", "/\u009f",
		"/\ue000", "/\uf8ff", "/\ufff0", "/\ufffd", "/\uffff", "/\U00010000", "/\U0001f600", "/\xff", "/\xed\xa0\x80", "/a\xc3",
		"/" + strings.Repeat("x", maxNameBytes+1),
	} {
		if err := ValidatePath(p); !errors.Is(err, ErrBadPath) {
			t.Errorf("%.40q: %v, want ErrBadPath", p, err)
		} else if len(err.Error()) > 1000 {
			t.Errorf("%.40q: the message has %d bytes", p, len(err.Error()))
		}
	}
}

// TestOrderOfChecks is ZK-WIRE 8, 9 and 11: which of several faults is told.
func TestOrderOfChecks(t *testing.T) {
	r := newTester(t)
	r.create("/x")
	r.create("/x/full")
	r.must(Op{Kind: OpCreate, Path: "/nocreate", ACL: []ACL{{PermAll &^ PermCreate, "world", "anyone"}}})
	r.must(Op{Kind: OpCreate, Path: "/nodelete", ACL: []ACL{{PermAll &^ PermDelete, "world", "anyone"}}})
	r.must(Op{Kind: OpCreate, Path: "/nodelete/k", ACL: []ACL{{PermRead, "world", "anyone"}}})
	r.caller.Session = 1
	r.must(Op{Kind: OpCreate, Path: "/eph", Node: Ephemeral})
	r.caller.Session = 0
	bad := []ACL{{1, "foo", "x"}}
	for _, x := range []struct {
		name string
		op   Op
		want error
	}{
		{"kind before path", Op{Kind: OpCreate, Path: "abc", Node: TTL + 1}, ErrBadArguments},
		{"kind before path", Op{Kind: OpCreate, Path: "abc", Node: Ephemeral}, ErrBadArguments},
		{"no slash before ACL", Op{Kind: OpCreate, Path: "abc", ACL: bad}, ErrBadPath},
		{"NUL before ACL", Op{Kind: OpCreate, Path: "/no/a\x00", ACL: bad}, ErrBadPath},
		{"ACL before parent", Op{Kind: OpCreate, Path: "/no/no", ACL: bad}, ErrInvalidACL},
		{"parent before bad name", Op{Kind: OpCreate, Path: "/no/.."}, ErrNoNode},
		{"no slash in front", Op{Kind: OpCreate, Path: "a/b"}, ErrNoNode},
		{"empty element above", Op{Kind: OpCreate, Path: "/x//y"}, ErrNoNode},
		{"bad name", Op{Kind: OpCreate, Path: "/x/.."}, ErrBadPath},
		{"empty name", Op{Kind: OpCreate, Path: "/x/"}, ErrBadPath},
		{"two slashes", Op{Kind: OpCreate, Path: "//y"}, ErrBadPath},
		{"permission before existence", Op{Kind: OpCreate, Path: "/nocreate/x"}, ErrNoAuth},
		{"permission before bad name", Op{Kind: OpCreate, Path: "/nocreate/.."}, ErrNoAuth},
		{"root", Op{Kind: OpCreate, Path: "/"}, ErrNodeExists},
		{"exists", Op{Kind: OpCreate, Path: "/x/full"}, ErrNodeExists},
		{"ephemeral parent", Op{Kind: OpCreate, Path: "/eph/x"}, ErrEphemeralParent},
		{"path before ephemeral parent", Op{Kind: OpCreate, Path: "/eph/.."}, ErrBadPath},
		{"TTL of a plain node", Op{Kind: OpCreate, Path: "/t", TTL: 1e6}, ErrBadArguments},
		{"no TTL", Op{Kind: OpCreate, Path: "/t", Node: TTL}, ErrBadArguments},
		{"TTL below a millisecond", Op{Kind: OpCreate, Path: "/t", Node: TTL, TTL: 1}, ErrBadArguments},
		{"TTL of 41 bits", Op{Kind: OpCreate, Path: "/t", Node: TTL, TTL: MaxTTL + 1e6}, ErrBadArguments},
		{"config is closed", Op{Kind: OpCreate, Path: "/zookeeper/config/x"}, ErrNoAuth},

		{"set: path", Op{Kind: OpSet, Path: "/x/"}, ErrBadPath},
		{"set: node", Op{Kind: OpSet, Path: "/no"}, ErrNoNode},
		{"set: permission before version", Op{Kind: OpSet, Path: "/nodelete/k", Version: 9}, ErrNoAuth},
		{"set: -2 is no version", Op{Kind: OpSet, Path: "/x", Version: -2}, ErrBadVersion},
		{"set: config", Op{Kind: OpSet, Path: "/zookeeper/config", Version: AnyVersion}, ErrNoAuth},

		{"delete: no slash", Op{Kind: OpDelete, Path: "abc"}, ErrBadPath},
		{"delete: empty", Op{Kind: OpDelete, Path: ""}, ErrBadPath},
		{"delete: root", Op{Kind: OpDelete, Path: "/"}, ErrProtected},
		{"delete: system", Op{Kind: OpDelete, Path: "/zookeeper"}, ErrProtected},
		{"delete: config", Op{Kind: OpDelete, Path: "/zookeeper/config"}, ErrBadArguments},
		{"delete: quota", Op{Kind: OpDelete, Path: "/zookeeper/quota"}, ErrProtected},
		{"delete: parent", Op{Kind: OpDelete, Path: "/no/no"}, ErrNoNode},
		{"delete: node", Op{Kind: OpDelete, Path: "/no"}, ErrNoNode},
		{"delete: slash behind", Op{Kind: OpDelete, Path: "/x/full/"}, ErrNoNode},
		{"delete: slashes in front", Op{Kind: OpDelete, Path: "//eph"}, ErrNoNode},
		{"delete: permission before node", Op{Kind: OpDelete, Path: "/nodelete/x"}, ErrNoAuth},
		{"delete: version before children", Op{Kind: OpDelete, Path: "/x", Version: 5}, ErrBadVersion},
		{"delete: children", Op{Kind: OpDelete, Path: "/x", Version: 0}, ErrNotEmpty},

		{"setACL: path before list", Op{Kind: OpSetACL, Path: "x", ACL: bad}, ErrBadPath},
		{"setACL: list before node", Op{Kind: OpSetACL, Path: "/no", ACL: bad}, ErrInvalidACL},
		{"setACL: node", Op{Kind: OpSetACL, Path: "/no"}, ErrNoNode},
		{"setACL: permission before version", Op{Kind: OpSetACL, Path: "/nodelete/k", Version: 9}, ErrNoAuth},
		{"setACL: version", Op{Kind: OpSetACL, Path: "/x", Version: 9}, ErrBadVersion},

		{"check: path", Op{Kind: OpCheck, Path: "x"}, ErrBadPath},
		{"check: node", Op{Kind: OpCheck, Path: "/no", Version: AnyVersion}, ErrNoNode},
		{"check: version", Op{Kind: OpCheck, Path: "/x", Version: 1}, ErrBadVersion},
		{"unknown operation", Op{Kind: OpSequence + 1, Path: "/x"}, ErrBadArguments},
	} {
		t.Run(x.name, func(t *testing.T) {
			r.T = t
			r.fails(x.want, x.op)
		})
	}
	r.T = t
	r.must(Op{Kind: OpDelete, Path: "/eph", Version: 0}) // another session's
	r.check()
}

func TestReadOfAMalformedPathIsNotThere(t *testing.T) {
	tree := New()
	for _, p := range []string{"", "a", "//", "/a/", "/\xff", "/zookeeper/", "//zookeeper", "/./zookeeper"} {
		if _, ok := tree.Exists(p); ok {
			t.Errorf("%q exists", p)
		}
		if _, _, err := tree.Get(p, nil); !errors.Is(err, ErrNoNode) {
			t.Errorf("Get %q: %v", p, err)
		}
		if _, _, err := tree.Children(p, nil); !errors.Is(err, ErrNoNode) {
			t.Errorf("Children %q: %v", p, err)
		}
	}
}
