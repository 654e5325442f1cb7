package test

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/testcerts"
	"github.com/coordd/coord/znode"
)

// digestOf is what ZooKeeper's ACLs hold for "user:password".
func digestOf(credential string) string {
	user, _, _ := strings.Cut(credential, ":")
	sum := sha1.Sum([]byte(credential))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

const superCredential = "super:open sesame"

// guarded is one server with TLS, and people who use it.
type guarded struct {
	*secured
	people map[string]*client.Client
}

// startGuarded lets in clients without a certificate, too.
func startGuarded(t testing.TB, extra string) *guarded {
	t.Helper()
	g := &guarded{secured: newSecured(t, 1, extra), people: map[string]*client.Client{}}
	p := g.nodes[0]
	p.extraEnv = append(p.extraEnv, "COORDD_AUTH_SUPER_DIGEST="+digestOf(superCredential))
	p.start()
	g.waitReady(30 * time.Second)
	for who, opts := range map[string][]client.Option{
		"alice":    {client.WithTLS(g.as("alice"))},
		"carol":    {client.WithTLS(g.as("")), client.WithAuth("digest", []byte("carol:pw"))},
		"mallory":  {client.WithTLS(g.as("mallory")), client.WithAuth("digest", []byte("carol:guess")), client.WithAuth("x509", []byte("alice")), client.WithAuth("ip", []byte("10.1.2.3"))},
		"nobody":   {client.WithTLS(g.as(""))},
		"traveler": {client.WithTLS(g.as("")), from("127.0.0.2")},
		"root":     {client.WithTLS(g.as(superuser))},
		"super":    {client.WithTLS(g.as("")), client.WithAuth("digest", []byte(superCredential))},
	} {
		g.people[who] = dial(t, g.endpoints(), opts...)
	}
	return g
}

// from makes a client connect from that address of loopback.
func from(address string) client.Option {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return client.WithGRPCOptions(grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", target)
	}))
}

// make creates a node as the superuser.
func (g *guarded) make(ctx context.Context, path, data string, acl ...client.ACL) {
	g.t.Helper()
	if len(acl) == 0 {
		acl = znode.OpenACL
	}
	if _, err := g.people["root"].Create(ctx, path, []byte(data), client.WithACL(acl...)); err != nil {
		g.t.Fatal(err)
	}
}

// permitted fails the test unless err is nil exactly for those who may.
func permitted(t *testing.T, what string, err error, may bool) {
	t.Helper()
	if may && err != nil || !may && !errors.Is(err, client.ErrNoAuth) {
		t.Errorf("%s: %v, permitted %v", what, err, may)
	}
}

func TestACLs(t *testing.T) {
	skipIfShort(t)
	g := startGuarded(t, "")
	for name, f := range map[string]func(*testing.T, context.Context){
		"everybody is who he has proved to be":    g.identities,
		"everyone beside others, in all orders":   g.everyoneBesideOthers,
		"a denied part undoes a transaction":      g.deniedPart,
		"a transaction cannot ask what is hidden": g.hiddenFromTransactions,
		"rights change within a transaction":      g.rightsWithinTransaction,
		"passwords are masked":                    g.masked,
		"a superuser may do everything":           g.superusers,
		"identities are those of the connection":  g.identitiesOfConnection,
		"unusable lists and credentials":          g.unusable,
		"calls without a session":                 g.withoutSession,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			f(t, ctx)
		})
	}
}

func (g *guarded) identities(t *testing.T, ctx context.Context) {
	// ZooKeeper's own example, so that both sides cannot be wrong together.
	if got := digestOf("super:superpw"); got != "super:g9oN2HttPfn8MMWJZ2r45Np/LIA=" {
		t.Fatalf("digest %s", got)
	}
	for i, tc := range []struct {
		scheme, id string
		may        []string
	}{
		{"world", "anyone", []string{"alice", "carol", "mallory", "nobody", "traveler"}},
		{"x509", "alice", []string{"alice"}},
		{"x509", "root", nil},
		{"digest", digestOf("carol:pw"), []string{"carol"}},
		{"ip", "127.0.0.1", []string{"alice", "carol", "mallory", "nobody"}},
		{"ip", "127.0.0.2", []string{"traveler"}},
		{"ip", "127.0.0.0/30", []string{"alice", "carol", "mallory", "nobody", "traveler"}},
		{"ip", "10.0.0.0/8", nil},
	} {
		path := fmt.Sprintf("/identities-%d", i)
		g.make(ctx, path, "x", client.ACL{Perms: znode.PermRead, Scheme: tc.scheme, ID: tc.id})
		for who, c := range g.people {
			may := slices.Contains(tc.may, who) || who == "root" || who == "super"
			_, err := c.Get(ctx, path)
			permitted(t, fmt.Sprintf("%s reads what %s:%s may read", who, tc.scheme, tc.id), err, may)
			_, err = c.Set(ctx, path, nil, client.AnyVersion)
			permitted(t, fmt.Sprintf("%s sets what %s:%s may read", who, tc.scheme, tc.id), err, who == "root" || who == "super")
		}
	}
}

// everyoneBesideOthers: a list is stored as it was given, and lets everybody do
// what any of its entries lets him do.
func (g *guarded) everyoneBesideOthers(t *testing.T, ctx context.Context) {
	entries := []client.ACL{
		{Perms: znode.PermRead, Scheme: "world", ID: "anyone"},
		{Perms: znode.PermWrite, Scheme: "x509", ID: "alice"},
		{Perms: znode.PermCreate | znode.PermDelete, Scheme: "digest", ID: digestOf("carol:pw")},
	}
	rights := map[string]uint32{
		"alice": znode.PermRead | znode.PermWrite, "carol": znode.PermRead | znode.PermCreate | znode.PermDelete,
		"nobody": znode.PermRead, "root": znode.PermAll,
	}
	for i, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		path := fmt.Sprintf("/everyone-%d", i)
		var list []client.ACL
		for _, k := range order {
			list = append(list, entries[k])
		}
		g.make(ctx, path, "", list...)
		if got, _, err := g.people["root"].ACL(ctx, path); err != nil || !slices.Equal(got, list) {
			t.Errorf("%v is stored as %v, %v", list, got, err)
		}
		for who, have := range rights {
			g.tryEverything(t, ctx, who, path, have)
		}
	}
}

// tryEverything does what each permission is for.
func (g *guarded) tryEverything(t *testing.T, ctx context.Context, who, path string, have uint32) {
	t.Helper()
	c, child := g.people[who], path+"/"+who
	may := func(perm uint32) bool { return have&perm != 0 }
	_, err := c.Get(ctx, path)
	permitted(t, who+" gets", err, may(znode.PermRead))
	_, err = c.Children(ctx, path)
	permitted(t, who+" lists", err, may(znode.PermRead))
	_, err = c.Set(ctx, path, nil, client.AnyVersion)
	permitted(t, who+" sets", err, may(znode.PermWrite))
	if _, err = c.Create(ctx, child, nil); err != nil {
		g.make(ctx, child, "")
	}
	permitted(t, who+" creates", err, may(znode.PermCreate))
	err = c.Delete(ctx, child, client.AnyVersion)
	permitted(t, who+" deletes", err, may(znode.PermDelete))
	list, st, err := g.people["root"].ACL(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.SetACL(ctx, path, list, st.Aversion)
	permitted(t, who+" sets the ACL", err, may(znode.PermAdmin))
}

// deniedPart puts an operation that is not permitted at each place of a
// transaction, and looks for anything that it leaves behind.
func (g *guarded) deniedPart(t *testing.T, ctx context.Context) {
	alice, root := g.people["alice"], g.people["root"]
	g.make(ctx, "/open", "")
	g.make(ctx, "/open/n", "before")
	g.make(ctx, "/shut", "secret", client.ACL{Perms: znode.PermAll, Scheme: "x509", ID: superuser})
	g.make(ctx, "/shut/n", "")
	before := g.tree(ctx, t)
	events := g.changes(ctx, t)
	denied := map[string]client.Op{
		"create":                      client.OpCreate("/shut/new", nil),
		"set":                         client.OpSet("/shut", nil, client.AnyVersion),
		"delete":                      client.OpDelete("/shut/n", client.AnyVersion),
		"set ACL":                     client.OpSetACL("/shut", znode.OpenACL, client.AnyVersion),
		"check":                       client.OpCheck("/shut", client.AnyVersion),
		"ephemeral sequential create": client.OpCreate("/shut/e-", nil, client.WithEphemeral(), client.WithSequential()),
	}
	for name, bad := range denied {
		for at := range 4 {
			ops := []client.Op{
				client.OpCreate("/open/new", nil, client.WithEphemeral()), client.OpSet("/open/n", []byte("after"), client.AnyVersion),
				client.OpSetACL("/open/n", []client.ACL{{Perms: znode.PermRead, Scheme: "world", ID: "anyone"}}, client.AnyVersion),
			}
			results, err := alice.Txn(ctx, slices.Insert(ops, at, bad)...)
			var e *client.Error
			if !errors.As(err, &e) || !errors.Is(err, client.ErrNoAuth) || e.Index != at {
				t.Errorf("%s at %d: %v", name, at, err)
			}
			for i, r := range results {
				if want := map[bool]error{true: client.ErrNoAuth, false: client.ErrRolledBack}[i == at]; !errors.Is(r.Err, want) {
					t.Errorf("%s at %d: part %d says %v, want %v", name, at, i, r.Err, want)
				}
			}
		}
	}
	if after := g.tree(ctx, t); !reflect.DeepEqual(after, before) {
		t.Errorf("left behind: %v, before %v", after, before)
	}
	if _, err := root.Set(ctx, "/open", []byte("mark"), client.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if e := <-events; e.Path != "/open" || e.Type != client.EventChanged {
		t.Errorf("a transaction that was not permitted fired %v", e)
	}
}

// tree is everything below /open and /shut, ACLs included.
func (g *guarded) tree(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, top := range []string{"/open", "/shut"} {
		for n, err := range g.people["root"].Walk(ctx, top) {
			if err != nil {
				t.Fatal(err)
			}
			acl, _, err := g.people["root"].ACL(ctx, n.Path)
			if err != nil {
				t.Fatal(err)
			}
			all[n.Path] = fmt.Sprintf("%q %+v %v", n.Data, n.Stat, acl)
		}
	}
	return all
}

// changes are those of the whole tree from now on, without what the servers write
// themselves below /zookeeper.
func (g *guarded) changes(ctx context.Context, t *testing.T) <-chan client.Event {
	t.Helper()
	out := make(chan client.Event, 100)
	begun := make(chan struct{})
	go func() {
		defer close(out)
		for e, err := range g.people["root"].Watch(ctx, "/", client.Recursive(), client.Initial(client.Linearizable)) {
			if err != nil {
				return
			}
			if e.Type == client.EventPresent {
				close(begun)
				continue
			}
			if !strings.HasPrefix(e.Path, "/zookeeper/") {
				out <- e
			}
		}
	}()
	select {
	case <-begun:
	case <-ctx.Done():
		t.Fatal("the watch does not begin")
	}
	return out
}

// hiddenFromTransactions: neither the version nor the data of a node can be
// found out by who may not read it.
func (g *guarded) hiddenFromTransactions(t *testing.T, ctx context.Context) {
	g.make(ctx, "/hidden", "secret", client.ACL{Perms: znode.PermWrite, Scheme: "x509", ID: "alice"})
	alice, nobody := g.people["alice"], g.people["nobody"]
	for _, version := range []client.Version{0, 1, client.AnyVersion} {
		for who, c := range map[string]*client.Client{"alice": alice, "nobody": nobody} {
			_, err := c.Txn(ctx, client.OpCheck("/hidden", version))
			var e *client.Error
			if !errors.Is(err, client.ErrNoAuth) || errors.As(err, &e) && e.Have != 0 {
				t.Errorf("%s checks version %d: %v", who, version, err)
			}
		}
		if _, err := nobody.Set(ctx, "/hidden", nil, version); !errors.Is(err, client.ErrNoAuth) {
			t.Errorf("nobody sets version %d: %v", version, err)
		}
	}
	results, err := alice.Txn(ctx, client.OpSet("/hidden", []byte("hers"), 0))
	if err != nil || results[0].Stat.Version != 1 {
		t.Errorf("who may set but not read sets: %v, %v", results, err)
	}
	if _, err := alice.Get(ctx, "/hidden"); !errors.Is(err, client.ErrNoAuth) {
		t.Errorf("and reads: %v", err)
	}
}

// rightsWithinTransaction: each part is judged by the state that the parts before
// it have left.
func (g *guarded) rightsWithinTransaction(t *testing.T, ctx context.Context) {
	mine := []client.ACL{{Perms: znode.PermAll, Scheme: "x509", ID: "alice"}}
	g.make(ctx, "/within", "", mine...)
	alice := g.people["alice"]
	readOnly := []client.ACL{{Perms: znode.PermRead | znode.PermAdmin, Scheme: "x509", ID: "alice"}}
	_, err := alice.Txn(ctx, client.OpSetACL("/within", readOnly, client.AnyVersion), client.OpSet("/within", []byte("x"), client.AnyVersion))
	permitted(t, "setting after giving the right away", err, false)
	if got, _, err := alice.ACL(ctx, "/within"); err != nil || !slices.Equal(got, mine) {
		t.Errorf("afterwards the ACL is %v, %v", got, err)
	}
	if _, err := alice.SetACL(ctx, "/within", readOnly, client.AnyVersion); err != nil {
		t.Fatal(err)
	}
	_, err = alice.Txn(ctx, client.OpSetACL("/within", mine, client.AnyVersion), client.OpSet("/within", []byte("x"), client.AnyVersion))
	permitted(t, "setting after taking the right", err, true)
}

func (g *guarded) masked(t *testing.T, ctx context.Context) {
	full := []client.ACL{
		{Perms: znode.PermRead, Scheme: "x509", ID: "alice"},
		{Perms: znode.PermAdmin, Scheme: "digest", ID: digestOf("carol:pw")},
	}
	hidden := []client.ACL{full[0], {Perms: znode.PermAdmin, Scheme: "digest", ID: "carol:x"}}
	g.make(ctx, "/masked", "", full...)
	for who, want := range map[string][]client.ACL{"carol": full, "root": full, "super": full, "alice": hidden, "nobody": nil, "mallory": nil} {
		got, _, err := g.people[who].ACL(ctx, "/masked")
		permitted(t, who+" reads the ACL", err, want != nil)
		if !slices.Equal(got, want) {
			t.Errorf("%s sees %v, want %v", who, got, want)
		}
	}
}

func (g *guarded) superusers(t *testing.T, ctx context.Context) {
	p := g.nodes[0]
	for _, who := range []string{"root", "super"} {
		path := "/for-nobody-but-" + who
		g.make(ctx, path, "x", client.ACL{Perms: znode.PermAll, Scheme: "digest", ID: "someone:else"})
		g.tryEverything(t, ctx, who, path, znode.PermAll)
		admin := g.people[who].Admin()
		if st, err := admin.Any().Status(ctx, &coordpb.StatusRequest{}); err != nil || st.GetServer() != p.name {
			t.Errorf("status for %s: %v", who, err)
		}
		if r, err := admin.At(p.grpc()).Snapshot(ctx, &coordpb.SnapshotRequest{}); err != nil || r.GetError() != nil {
			t.Errorf("snapshot for %s: %v, %v", who, r, err)
		}
	}
	for _, who := range []string{"alice", "carol", "mallory", "nobody", "traveler"} {
		if _, err := g.people[who].Admin().Any().Snapshot(ctx, &coordpb.SnapshotRequest{}); err == nil || !strings.Contains(err.Error(), "admin identity") {
			t.Errorf("snapshot for %s: %v", who, err)
		}
		conn := connect(t, p.grpc(), credentials.NewTLS(g.as("")))
		if _, err := coordpb.NewAdminClient(conn).Snapshot(ctx, &coordpb.SnapshotRequest{}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("snapshot for %s: %v", who, err)
		}
	}
}

// identitiesOfConnection moves a session to a connection of somebody else, who
// knows its secret: he does not become who has opened it.
func (g *guarded) identitiesOfConnection(t *testing.T, _ context.Context) {
	address := g.nodes[0].grpc()
	create := func(path string) *coordpb.Op {
		return &coordpb.Op{Kind: coordpb.Op_KIND_CREATE, Path: path, Version: -1, Acl: []*coordpb.ACL{{Perms: znode.PermAll, Scheme: "auth"}}}
	}
	set := func(path string) *coordpb.Op { return &coordpb.Op{Kind: coordpb.Op_KIND_SET, Path: path, Version: -1} }
	s := greet(t, connect(t, address, credentials.NewTLS(g.as("alice"))), rawHello())
	if got := s.write(create("/moved")); got.GetError() != nil {
		t.Fatal(got)
	}
	m := greet(t, connect(t, address, credentials.NewTLS(g.as("mallory"))), s.attachHello(2))
	if m.welcome.GetError() != nil {
		t.Fatal(m.welcome)
	}
	m.seq = s.seq
	if got := m.write(set("/moved")); got.GetError().GetCode() != coordpb.Code_CODE_NO_AUTH {
		t.Errorf("mallory sets what is alice's: %v", got)
	}
	a := greet(t, connect(t, address, credentials.NewTLS(g.as("alice"))), s.attachHello(3))
	a.seq = m.seq
	if got := a.write(set("/moved")); got.GetError() != nil {
		t.Errorf("alice, back again, sets what is hers: %v", got)
	}
}

func (g *guarded) unusable(t *testing.T, ctx context.Context) {
	alice := g.people["alice"]
	for name, list := range map[string][]client.ACL{
		"super":           {{Perms: znode.PermAll, Scheme: "super"}},
		"unknown scheme":  {{Perms: znode.PermAll, Scheme: "kerberos", ID: "alice"}},
		"no hash":         {{Perms: znode.PermAll, Scheme: "digest", ID: "carol"}},
		"no address":      {{Perms: znode.PermAll, Scheme: "ip", ID: "home"}},
		"one bad of many": {{Perms: znode.PermAll, Scheme: "world", ID: "anyone"}, {Perms: znode.PermAll, Scheme: "world", ID: "nobody"}},
		"too long":        {{Perms: znode.PermAll, Scheme: "x509", ID: strings.Repeat("x", 10_000)}},
		"too many":        slices.Repeat([]client.ACL{{Perms: znode.PermAll, Scheme: "world", ID: "anyone"}}, 10_000),
	} {
		if _, err := alice.Create(ctx, "/unusable", nil, client.WithACL(list...)); !errors.Is(err, client.ErrInvalidACL) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := g.people["nobody"].Create(ctx, "/unusable", nil, client.WithACL(client.ACL{Perms: znode.PermAll, Scheme: "auth"})); !errors.Is(err, client.ErrInvalidACL) {
		t.Errorf("auth of somebody who has proved nothing: %v", err)
	}
	for name, opts := range map[string][]client.Option{
		"super by claim":   {client.WithAuth("super", nil)},
		"unknown scheme":   {client.WithAuth("kerberos", []byte("alice"))},
		"endless password": {client.WithAuth("digest", []byte("carol:"+strings.Repeat("x", 2000)))},
		"many":             slices.Repeat([]client.Option{client.WithAuth("digest", []byte("a:b"))}, 17),
	} {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		c, err := client.Dial(ctx, g.target(), append(opts, client.WithTLS(g.as("alice")))...)
		cancel()
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, client.ErrAuthFailed) || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "xxx") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The system's own nodes do not open to the superuser by mistake only.
	if _, err := alice.Set(ctx, "/zookeeper/config", nil, client.AnyVersion); err == nil {
		t.Error("a user sets /zookeeper/config")
	}
}

func (g *guarded) withoutSession(t *testing.T, ctx context.Context) {
	g.make(ctx, "/plain", "x", client.ACL{Perms: znode.PermRead | znode.PermWrite, Scheme: "x509", ID: "alice"},
		client.ACL{Perms: znode.PermRead | znode.PermWrite, Scheme: "digest", ID: digestOf("carol:pw")})
	for who, tc := range map[string]struct {
		opts []client.Option
		may  bool
	}{
		"alice":  {[]client.Option{client.WithTLS(g.as("alice"))}, true},
		"carol":  {[]client.Option{client.WithTLS(g.as("")), client.WithAuth("digest", []byte("carol:pw"))}, true},
		"nobody": {[]client.Option{client.WithTLS(g.as(""))}, false},
		"root":   {[]client.Option{client.WithTLS(g.as(superuser))}, true},
	} {
		c := dial(t, g.endpoints(), append(tc.opts, client.WithoutSession())...)
		_, err := c.Get(ctx, "/plain")
		permitted(t, who+" reads", err, tc.may)
		_, err = c.Set(ctx, "/plain", nil, client.AnyVersion)
		permitted(t, who+" sets", err, tc.may)
		_, err = c.Set(client.WithRequestID(ctx, "set by "+who), "/plain", nil, client.AnyVersion)
		permitted(t, who+" sets with a request id", err, tc.may)
	}
	// Who knows the id of a request and its content gets its answer again, and
	// nothing is done for him.
	root := g.people["root"]
	before, _, err := root.Exists(ctx, "/plain")
	if err != nil {
		t.Fatal(err)
	}
	mallory := dial(t, g.endpoints(), client.WithTLS(g.showing(g.ca.Pair(t, "mallory", testcerts.ClientOnly))), client.WithoutSession())
	st, err := mallory.Set(client.WithRequestID(ctx, "set by alice"), "/plain", nil, client.AnyVersion)
	if err != nil || st.Version > before.Version {
		t.Errorf("the request of alice, repeated by mallory: version %d, %v", st.Version, err)
	}
	if after, _, err := root.Exists(ctx, "/plain"); err != nil || after != before {
		t.Errorf("it made %+v of %+v, %v", after, before, err)
	}
	if _, err := mallory.Set(client.WithRequestID(ctx, "set by mallory"), "/plain", nil, client.AnyVersion); !errors.Is(err, client.ErrNoAuth) {
		t.Errorf("his own: %v", err)
	}
}
