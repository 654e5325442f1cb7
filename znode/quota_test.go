package znode

import (
	"errors"
	"strings"
	"testing"
)

const quotaOfA = "/zookeeper/quota/a"

// withQuota makes a quota for /a with the limits.
func (t *tester) withQuota(limits string) {
	t.Helper()
	t.create(quotaOfA)
	t.must(Op{Kind: OpCreate, Path: quotaOfA + "/zookeeper_limits", Data: []byte(limits)})
	t.must(Op{Kind: OpCreate, Path: quotaOfA + "/zookeeper_stats", Data: []byte("count=0,bytes=0")})
}

func (t *tester) usage(want string) {
	t.Helper()
	if got := t.data(quotaOfA + "/zookeeper_stats"); got != want {
		t.Errorf("statistics are %q, want %q", got, want)
	}
	t.check()
}

func TestStatisticsFollowTheSubtree(t *testing.T) {
	r := newTester(t)
	r.must(Op{Kind: OpCreate, Path: "/a", Data: []byte("12")})
	r.must(Op{Kind: OpCreate, Path: "/ab", Data: []byte("not below")})
	r.withQuota("count=100,bytes=10000")
	r.usage("count=1,bytes=2")
	r.must(Op{Kind: OpCreate, Path: "/a/b", Data: []byte("12345")})
	r.usage("count=2,bytes=7")
	r.must(Op{Kind: OpSet, Path: "/a/b", Data: []byte("1234567"), Version: 0})
	r.usage("count=2,bytes=9")
	if st := r.stat(quotaOfA + "/zookeeper_stats"); st.Version != 0 || st.Mzxid != st.Czxid {
		t.Errorf("statistics were set like data: %+v", st)
	}
	if len(r.tx.Changes) != 1 {
		t.Errorf("statistics fired: %+v", r.tx.Changes)
	}
	r.caller.Session = 4
	r.must(Op{Kind: OpCreate, Path: "/a/b/e", Node: Ephemeral, Data: []byte("1")})
	r.usage("count=3,bytes=10")
	r.tree.EndSession(r.begin(), 4, true)
	r.usage("count=2,bytes=9")
	_, err := r.multi(Op{Kind: OpCreate, Path: "/a/c"}, Op{Kind: OpDelete, Path: "/a/b"}, Op{Kind: OpCheck, Path: "/no"})
	if !errors.Is(err, ErrBadVersion) && !errors.Is(err, ErrNoNode) {
		t.Fatal(err)
	}
	r.usage("count=2,bytes=9")
	r.tree = r.restored()
	r.must(Op{Kind: OpDelete, Path: "/a/b", Version: 1})
	r.usage("count=1,bytes=2")
	r.must(Op{Kind: OpDelete, Path: "/a", Version: 0})
	r.usage("count=0,bytes=0")
	r.must(Op{Kind: OpDelete, Path: quotaOfA + "/zookeeper_limits", Version: AnyVersion})
	r.create("/a")
	r.usage("count=0,bytes=0") // no longer kept
}

func TestHardLimitsAreEnforced(t *testing.T) {
	r := newTester(t)
	r.create("/a")
	r.withQuota("count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=3")
	r.must(Op{Kind: OpCreate, Path: "/a/b", Data: []byte("12345")})
	r.must(Op{Kind: OpCreate, Path: "/a/c"})
	err := r.fails(ErrQuotaExceeded, Op{Kind: OpCreate, Path: "/a/d"})
	for _, part := range []string{"countHardLimit", "/a ", "3", quotaOfA + "/zookeeper_limits"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %q", err, part)
		}
	}
	r.must(Op{Kind: OpSet, Path: "/a/c", Data: []byte("12345"), Version: AnyVersion})
	r.fails(ErrQuotaExceeded, Op{Kind: OpSet, Path: "/a/c", Data: []byte("123456"), Version: AnyVersion})
	r.fails(ErrBadVersion, Op{Kind: OpSet, Path: "/a/c", Data: []byte("123456"), Version: 9})
	r.must(Op{Kind: OpSet, Path: "/a/c", Data: []byte("1234"), Version: AnyVersion})
	r.must(Op{Kind: OpDelete, Path: "/a/c", Version: AnyVersion})
	if _, err := r.multi(Op{Kind: OpCreate, Path: "/a/c"}, Op{Kind: OpCreate, Path: "/a/d"}); !errors.Is(err, ErrQuotaExceeded) {
		t.Errorf("a multi passes the limit: %v", err)
	}
	r.usage("count=2,bytes=5")

	// Lowering a limit refuses only what grows.
	r.must(Op{Kind: OpSet, Path: quotaOfA + "/zookeeper_limits", Data: []byte("=;byteHardLimit=2"), Version: AnyVersion})
	r.must(Op{Kind: OpSet, Path: "/a/b", Data: []byte("1234"), Version: AnyVersion})
	r.must(Op{Kind: OpCreate, Path: "/a/c"})
	r.fails(ErrQuotaExceeded, Op{Kind: OpCreate, Path: "/a/d", Data: []byte("1")})
	r.tree = r.restored()
	r.fails(ErrQuotaExceeded, Op{Kind: OpCreate, Path: "/a/d", Data: []byte("1")})
	r.must(Op{Kind: OpCreate, Path: "/b", Data: []byte("elsewhere is free")})
	r.must(Op{Kind: OpSet, Path: quotaOfA + "/zookeeper_limits", Data: []byte("count=1,bytes=1"), Version: AnyVersion})
	r.must(Op{Kind: OpCreate, Path: "/a/d", Data: []byte("soft limits refuse nothing")})
	r.check()
}

func TestQuotasWithinQuotas(t *testing.T) {
	r := newTester(t)
	r.create("/a")
	r.create("/a/b")
	r.withQuota("=;countHardLimit=4")
	r.create(quotaOfA + "/b")
	r.must(Op{Kind: OpCreate, Path: quotaOfA + "/b/zookeeper_limits", Data: []byte("=;countHardLimit=2")})
	r.create("/a/b/1")
	r.fails(ErrQuotaExceeded, Op{Kind: OpCreate, Path: "/a/b/2"})
	r.create("/a/c")
	r.fails(ErrQuotaExceeded, Op{Kind: OpCreate, Path: "/a/d"})
	r.usage("count=4,bytes=0")
	r.restored()
}

func TestUnreadableLimitsLimitNothing(t *testing.T) {
	for _, limits := range []string{"", "nonsense", "countHardLimit", "countHardLimit=", "countHardLimit=x", "countHardLimit=-5", "=;;,,=", "countHardLimit=99999999999999999999", "\xff\x00"} {
		r := newTester(t)
		r.create("/a")
		r.withQuota(limits)
		r.create("/a/b")
		r.usage("count=2,bytes=0")
	}
}

// TestSystemHasNoQuota: the statistics would count themselves.
func TestSystemHasNoQuota(t *testing.T) {
	r := newTester(t)
	for _, top := range []string{"", "/zookeeper", "/zookeeper/quota"} {
		for _, name := range []string{"/zookeeper_limits", "/zookeeper_stats"} {
			p := "/zookeeper/quota" + top + name
			for i := 1; i < len(p); i++ {
				if p[i] == '/' {
					if _, ok := r.tree.Exists(p[:i]); !ok {
						r.create(p[:i])
					}
				}
			}
			r.must(Op{Kind: OpCreate, Path: p, Data: []byte("=;countHardLimit=0")})
		}
	}
	r.create("/free")
	r.create("/zookeeper/free")
	r.check()
	r.restored()
}
