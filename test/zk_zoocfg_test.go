package test

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coord/internal/testcerts"
	"github.com/coordd/coord/test/internal/child"
	"github.com/coordd/coord/test/internal/freeport"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

// zooServer is a coordd that runs with a zoo.cfg and nothing else.
type zooServer struct {
	child.Process
	t    testing.TB
	dir  string // has zoo.cfg, data and log
	port int    // for clients
}

// newZooServer writes a zoo.cfg and the number of the server, if it has one.
func newZooServer(t testing.TB, port, number int, text string) *zooServer {
	t.Helper()
	s := &zooServer{t: t, dir: t.TempDir(), port: port}
	data := filepath.Join(s.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if number > 0 {
		s.file("data/myid", fmt.Sprintln(number))
	}
	s.file("zoo.cfg", "dataDir="+data+"\n"+text)
	return s
}

// zooPort finds a client port that is free, count of them in a row, with the ports
// that follow from it.
func zooPort(t testing.TB, count int) int {
	t.Helper()
	for range 200 {
		port := freeport.Range(t, count)
		grpc, peer := port+10_000, port+20_000
		if grpc > 32767 {
			grpc = port - 10_000
		}
		if peer > 32767 {
			peer = port - 5_000
		}
		if freeport.Free(grpc, 1) && freeport.Free(peer, 1) {
			return port
		}
	}
	t.Fatal("no ports are free")
	return 0
}

func (s *zooServer) file(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *zooServer) host() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *zooServer) start(args ...string) {
	s.t.Helper()
	cmd := exec.Command(program(s.t, "coordd"), append([]string{"run"}, args...)...)
	if err := s.Start(cmd, filepath.Join(s.dir, "log"), nil); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		s.signal(syscall.SIGKILL)
		if s.t.Failed() {
			s.t.Logf("end of the log of %s:\n%s", s.host(), tail(s.log(), 3000))
		}
	})
}

// signal sends sig and waits for the end of the server.
func (s *zooServer) signal(sig syscall.Signal) {
	s.Signal(sig)
	<-s.Done()
}

func (s *zooServer) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(text)
}

// serves waits until the server has a leader; it is asked as monitors ask.
func (s *zooServer) serves() (srvr string) {
	s.t.Helper()
	poll(s.t, 30*time.Second, s.host()+" serves", func() error {
		if !s.Running() {
			s.t.Fatalf("%s has ended:\n%s", s.host(), tail(s.log(), 2000))
		}
		nc, err := net.Dial("tcp", s.host())
		if err != nil {
			return err
		}
		nc.Close()
		if srvr = zkWord(s.t, s.host(), "srvr"); !strings.Contains(srvr, "Mode: ") {
			return fmt.Errorf("srvr: %s", srvr)
		}
		return nil
	})
	return srvr
}

// debian is the zoo.cfg that Debian's package of ZooKeeper 3.8 installs, with the
// comments cut, and what operators add to it.
const debian = `# http://hadoop.apache.org/zookeeper/docs/current/zookeeperAdmin.html

# The number of milliseconds of each tick
tickTime=2000
# The number of ticks that the initial
# synchronization phase can take
initLimit=10
syncLimit=5
# specify all zookeeper servers
# The first port is used by followers to connect to the leader
#server.1=zookeeper1:2888:3888
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
`

// TestEnsembleRunsFromItsZooCfgs: three servers of one machine, each with nothing
// but the file and the number that ZooKeeper gave it.
func TestEnsembleRunsFromItsZooCfgs(t *testing.T) {
	t.Parallel()
	base := freeport.Range(t, 30)
	var lines strings.Builder
	for i := range 3 {
		fmt.Fprintf(&lines, "server.%d=127.0.0.1:%d:%d\n", i+1, base+10*i+1, base+10*i+2)
	}
	var servers []*zooServer
	for i := range 3 {
		port := base + 10*i
		s := newZooServer(t, port, i+1, fmt.Sprintf("%sclientPort=%d\nDigestAuthenticationProvider.superDigest=%s\n%scoordd.raft.heartbeat=150ms\ncoordd.raft.election=150ms\n",
			debian, port, zkDigest(zkSuper), lines.String()))
		s.start(filepath.Join(s.dir, "zoo.cfg"))
		servers = append(servers, s)
	}
	poll(t, 30*time.Second, "a leader and two followers", func() error {
		var modes []string
		for _, s := range servers {
			_, mode, _ := strings.Cut(s.serves(), "Mode: ")
			mode, _, _ = strings.Cut(mode, "\n")
			modes = append(modes, mode)
		}
		if slices.Sort(modes); !slices.Equal(modes, []string{"follower", "follower", "leader"}) {
			return fmt.Errorf("modes: %v", modes)
		}
		return nil
	})
	c := zkOpen(t, servers[0].host())
	if c.timeout != 10*time.Second {
		t.Errorf("a timeout within the bounds was made %s", c.timeout)
	}
	short := zkDial(t, servers[1].host())
	if hello := short.hello(&wire.ConnectRequest{Timeout: time.Millisecond, HasReadOnly: true}); hello.Timeout != 4*time.Second {
		t.Errorf("the shortest timeout is %s, want two ticks", hello.Timeout)
	}
	long := zkDial(t, servers[2].host())
	if hello := long.hello(&wire.ConnectRequest{Timeout: time.Hour, HasReadOnly: true}); hello.Timeout != 40*time.Second {
		t.Errorf("the longest timeout is %s, want twenty ticks", hello.Timeout)
	}
	c.must(zkCreate("/a", "1", 0))
	locked := zkCreate("/locked", "", 0)
	locked.ACL = []znode.ACL{{Perms: 31, Scheme: "digest", ID: "u:x"}}
	c.must(locked)
	c.wants(wire.NoAuth, zkSet("/locked", "x", -1))
	c.auth("digest", zkSuper)
	c.must(zkSet("/locked", "x", -1))
	checkZooServers(t, c, servers)
	for _, s := range servers {
		s.signal(syscall.SIGTERM)
	}
	for _, s := range servers {
		s.start("--config", filepath.Join(s.dir, "zoo.cfg"))
	}
	servers[1].serves()
	again := c.resume(servers[1].host())
	if again.session != c.session {
		t.Error("a restart of all servers has ended a session")
	}
	if got := string(again.must(zkRead(wire.GetData, "/a", false)).Data); got != "1" {
		t.Errorf("after a restart /a is %q", got)
	}
	log := servers[0].log()
	for _, want := range []string{"initLimit=10: has no meaning here", "autopurge.snapRetainCount=3", "insecure is set"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log says nothing of %q:\n%s", want, tail(log, 2000))
		}
	}
}

// checkZooServers checks what servers say of themselves and of each other.
func checkZooServers(t *testing.T, c *zkConn, servers []*zooServer) {
	t.Helper()
	for i, s := range servers {
		if got := zkWord(t, s.host(), "conf"); !strings.Contains(got, fmt.Sprintf("serverId=%d\n", i+1)) || !strings.Contains(got, fmt.Sprintf("clientPort=%d\n", s.port)) {
			t.Errorf("conf of server %d: %s", i+1, got)
		}
	}
	poll(t, 10*time.Second, "/zookeeper/config", func() error {
		config := string(c.must(zkRead(wire.GetData, "/zookeeper/config", false)).Data)
		for i, s := range servers {
			if !strings.Contains(config, fmt.Sprintf("server.%d=127.0.0.1:%d:", i+1, s.port+1)) || !strings.Contains(config, fmt.Sprintf(";127.0.0.1:%d", s.port)) {
				return fmt.Errorf("server %d is not told of: %s", i+1, config)
			}
		}
		return nil
	})
}

// TestServerByItselfTakesAZooKeepersPlace, with its own data left as it is: the
// least zoo.cfg, of a directory in which ZooKeeper has worked.
func TestServerByItselfTakesAZooKeepersPlace(t *testing.T) {
	t.Parallel()
	port := zooPort(t, 1)
	s := newZooServer(t, port, 0, fmt.Sprintf("tickTime=100\nclientPort=%d\n", port))
	if err := os.Mkdir(filepath.Join(s.dir, "data/version-2"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.file("data/version-2/snapshot.0", "ZKSN")
	s.start(filepath.Join(s.dir, "zoo.cfg"))
	if srvr := s.serves(); !strings.Contains(srvr, "Mode: standalone") {
		t.Errorf("srvr: %s", srvr)
	}
	c := zkDial(t, s.host())
	if hello := c.hello(&wire.ConnectRequest{Timeout: time.Millisecond, HasReadOnly: true}); hello.Timeout != 200*time.Millisecond {
		t.Errorf("timeout %s, want two ticks", hello.Timeout)
	}
	n := zkOpen(t, s.host())
	n.must(zkCreate("/a", "", 0))
	if config := string(n.must(zkRead(wire.GetData, "/zookeeper/config", false)).Data); strings.Contains(config, ";") {
		t.Errorf("clients are sent to an address that only this machine knows: %s", config)
	}
	if got := s.log(); !strings.Contains(got, "version-2 has a ZooKeeper's data, which is not read") {
		t.Errorf("the old data is passed over:\n%s", got)
	}
	if text, err := os.ReadFile(filepath.Join(s.dir, "data/version-2/snapshot.0")); err != nil || string(text) != "ZKSN" {
		t.Errorf("the old data was touched: %q, %v", text, err)
	}
	s.signal(syscall.SIGKILL)
	s.start(filepath.Join(s.dir, "zoo.cfg"))
	s.serves()
	zkOpen(t, s.host()).must(zkRead(wire.GetData, "/a", false))
}

// TestSecureClientPortIsForTLSOnly beside a clientPort that takes both.
func TestSecureClientPortIsForTLSOnly(t *testing.T) {
	t.Parallel()
	ca := testcerts.New(t, "authority")
	dir := t.TempDir()
	files := testcerts.In(dir)
	ca.Write(t, files, "zk1", testcerts.Both)
	store := filepath.Join(dir, "store.pem")
	var pem []byte
	for _, name := range []string{files.Key, files.Cert} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		pem = append(pem, text...)
	}
	if err := os.WriteFile(store, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	port := zooPort(t, 2)
	s := newZooServer(t, port, 0, fmt.Sprintf("clientPort=%d\nsecureClientPort=%d\nssl.keyStore.location=%s\nssl.trustStore.location=%s\nssl.clientAuth=want\n4lw.commands.whitelist=*\n",
		port, port+1, store, files.CA))
	s.start(filepath.Join(s.dir, "zoo.cfg"))
	s.serves()
	zkOpen(t, s.host()).must(zkCreate("/a", "", 0))
	secure := fmt.Sprintf("127.0.0.1:%d", port+1)
	plain := zkDial(t, secure)
	plain.write((&wire.ConnectRequest{Timeout: 10 * time.Second}).Append(nil))
	plain.closed("plain text at the secure port")
	cfg := &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{ca.Pair(t, "billing", testcerts.ClientOnly)}}
	for _, host := range []string{secure, s.host()} {
		nc, err := tls.Dial("tcp", host, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		c := &zkConn{t: t, net: nc, host: host}
		c.hello(&wire.ConnectRequest{Timeout: 10 * time.Second, HasReadOnly: true})
		c.must(zkRead(wire.GetData, "/a", false))
		if who := c.must(wire.Request{Op: wire.Op{Type: wire.WhoAmI}}).Clients; !slices.Contains(who, wire.ClientInfo{Scheme: "x509", User: "billing"}) {
			t.Errorf("%s: identities %v", host, who)
		}
	}
	if got := zkWord(t, s.host(), "conf"); !strings.Contains(got, fmt.Sprintf("clientPort=%d\nsecureClientPort=%d\n", port, port+1)) {
		t.Errorf("conf: %s", got)
	}
}

// TestKazooFindsServersOfAZooCfg: a real client against the least configuration.
func TestKazooFindsServersOfAZooCfg(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	py, script := python(t), absolute(t, kazooSuite)
	port := zooPort(t, 1)
	s := newZooServer(t, port, 0, fmt.Sprintf("tickTime=2000\nclientPort=%d\n4lw.commands.whitelist=*\n", port))
	s.start(filepath.Join(s.dir, "zoo.cfg"))
	s.serves()
	startSuite(t, time.Minute, py, script, s.host(), "basics").wait(6)
}
