package zoocfg

import (
	"io/fs"
	"strings"
	"testing"
)

// disk is the files beside a zoo.cfg.
type disk map[string]string

func (d disk) files() Files {
	return Files{
		Read: func(path string) ([]byte, error) {
			text, ok := d[path]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return []byte(text), nil
		},
		Exists: func(path string) bool {
			for name := range d {
				if name == path || strings.HasPrefix(name, path+"/") {
					return true
				}
			}
			return false
		},
	}
}

func read(t *testing.T, text string, d disk) *Result {
	t.Helper()
	r, err := Read("zoo.cfg", []byte(text), d.files())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wants that settings have these values; "-" is one that must not be set.
func (r *Result) wants(t *testing.T, what string, want map[string]string) {
	t.Helper()
	for _, n := range r.Refused {
		t.Errorf("%s: refused: %s", what, n)
	}
	for name, value := range want {
		have, ok := r.Get(name)
		if value == "-" && ok || value != "-" && (!ok || have != value) {
			t.Errorf("%s: %s is %q (%v), want %q", what, name, have, ok, value)
		}
	}
}

const base = "dataDir=/d\nclientPort=2181\n"

const three = base + "server.1=a:2888:3888\nserver.2=b:2888:3888\nserver.3=c:2888:3888\n"

func TestEachKeyMeansWhatItMeansToZooKeeper(t *testing.T) {
	for text, want := range map[string]map[string]string{
		base: {
			"node.data_dir": "/d/coordd", "node.name": "zk1", "cluster.peers": "zk1=127.0.0.1:22181", "cluster.bootstrap": "auto",
			"listen.zookeeper": ":2181", "listen.grpc": ":12181", "listen.http": "", "listen.zookeeper_tls": "-", "insecure": "true",
			"session.min": "6s", "session.default": "10s", "session.max": "1m0s", "limits.connections_per_address": "60",
			"limits.connections": "-", "zookeeper.words": "-", "tls.cert": "-",
		},
		base + "tickTime=2000": {"session.min": "4s", "session.max": "40s"},
		base + "tickTime=100":  {"session.min": "200ms", "session.default": "2s", "session.max": "2s"},
		base + "tickTime=10":   {"session.min": "100ms", "session.default": "200ms", "session.max": "200ms"},
		base + "minSessionTimeout=1000\nmaxSessionTimeout=90000":             {"session.min": "1s", "session.max": "1m30s"},
		base + "minSessionTimeout=-1\nmaxSessionTimeout=-1":                  {"session.min": "6s", "session.max": "1m0s"},
		base + "maxClientCnxns=0":                                            {"limits.connections_per_address": "0"},
		base + "maxCnxns=500":                                                {"limits.connections": "500"},
		base + "clientPortAddress=10.1.2.3":                                  {"listen.zookeeper": "10.1.2.3:2181", "listen.grpc": "10.1.2.3:12181"},
		base + "clientPortAddress=::1":                                       {"listen.zookeeper": "[::1]:2181"},
		"dataDir=/d\nclientPort=60000":                                       {"listen.grpc": ":50000", "cluster.peers": "zk1=127.0.0.1:55000"},
		base + "4lw.commands.whitelist=stat, ruok,*":                         {"zookeeper.words": "stat,ruok,*"},
		base + "DigestAuthenticationProvider.superDigest=super:x=":           {"auth.super_digest": "super:x="},
		base + "zookeeper.DigestAuthenticationProvider.superDigest=super:y=": {"auth.super_digest": "super:y="},
		base + "X509AuthenticationProvider.superUser=CN=root,OU=ops":         {"auth.superusers": "root"},
		base + "readonlymode.enabled=TRUE":                                   {"zookeeper.read_only": "true"},
		base + "admin.serverPort=8081":                                       {"listen.http": ":8081"},
		base + "admin.serverPort=8081\nadmin.serverAddress=127.0.0.1":        {"listen.http": "127.0.0.1:8081"},
		base + "admin.serverPort=8081\nadmin.enableServer=false":             {"listen.http": ""},
		base + "metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\nadmin.serverPort=8081":                                       {"listen.http": ":7000"},
		base + "metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider\nmetricsProvider.httpPort=7070\nmetricsProvider.httpHost=::1": {"listen.http": "[::1]:7070"},
		base + "metricsProvider.httpPort=7070":      {"listen.http": ""},
		base + "jute.maxbuffer=500000":              {"zookeeper.frame_size": "500000", "limits.node_size": "-"},
		base + "jute.maxbuffer=0x200000":            {"zookeeper.frame_size": "2097152", "limits.node_size": "2097152", "limits.frame_size": "-"},
		base + "jute.maxbuffer=8388608":             {"zookeeper.frame_size": "8388608", "limits.node_size": "8388608", "limits.frame_size": "8454144"},
		base + "coordd.raft.heartbeat=500ms":        {"raft.heartbeat": "500ms"},
		base + "coordd.listen.grpc=127.0.0.1:7420":  {"listen.grpc": "127.0.0.1:7420"},
		base + "tickTime=1\ntickTime=2000":          {"session.min": "4s"},
		base + "skipACL=no\nforceSync=yes":          {"insecure": "true"},
		base + "peerType=participant":               {"node.name": "zk1"},
		"dataDir=C:\\\\zk\\u0020data\nclientPort=1": {"node.data_dir": `C:\zk data/coordd`},
		"dataDir: /d\n  clientPort \\\n   2181":     {"listen.zookeeper": ":2181", "node.data_dir": "/d/coordd"},
	} {
		read(t, text, nil).wants(t, text, want)
	}
}

func TestServersOfAnEnsemble(t *testing.T) {
	me := disk{"/d/myid": "2\n"}
	peers := "zk1=a:2888,zk2=b:2888,zk3=c:2888"
	for text, want := range map[string]map[string]string{
		three:                               {"cluster.peers": peers, "node.name": "zk2", "listen.peer": "-", "listen.zookeeper": ":2181"},
		three + "quorumListenOnAllIPs=true": {"cluster.peers": peers, "listen.peer": ":2888"},
		base + "server.3=c:2888:3888:participant\nserver.2=b:2888:3888|b2:2888:3888\nserver.10=[fe80::1]:2888:3888": {"cluster.peers": "zk2=b:2888,zk3=c:2888,zk10=[fe80::1]:2888"},
		"dataDir=/d\nserver.2=b:1:2;2182\nserver.3=c:1:2;2183":                                                      {"listen.zookeeper": ":2182", "listen.grpc": ":12182"},
		"dataDir=/d\nserver.2=b:1:2:participant;10.0.0.1:2182":                                                      {"listen.zookeeper": "10.0.0.1:2182"},
		"dataDir=/d\nclientPort=2182\nserver.2=b:1:2;0.0.0.0:2182":                                                  {"listen.zookeeper": ":2182"},
	} {
		read(t, text, me).wants(t, text, want)
	}
	for text, observers := range map[string]string{
		three + "server.4=d:2888:3888:observer":                                         "zk4=d:2888",
		three + "server.5=e:2888:3888:OBSERVER;2181\nserver.4=d:2888:3888:observer\n":   "zk4=d:2888,zk5=e:2888",
		"dataDir=/d\npeerType=observer\nserver.1=a:1:2\nserver.2=b:1:2:observer;2182\n": "zk2=b:1",
	} {
		read(t, text, me).wants(t, text, map[string]string{"cluster.observers": observers, "node.name": "zk2"})
	}
	read(t, three, me).wants(t, three, map[string]string{"cluster.observers": "-"})
	for text, want := range map[string]string{
		three + "peerType=observer": "server.2=...:observer",
		base + "server.1=a:1:2\nserver.2=b:1:2:observer\npeerType=participant": "server.2 is listed as an observer",
	} {
		if r := read(t, text, me); len(r.Refused) != 1 || !strings.Contains(r.Refused[0].String(), want) {
			t.Errorf("%q: refused %v, want %q", text, r.Refused, want)
		}
	}
	dynamic := disk{"/d/myid": "1", "/conf/dyn": "server.1=a:1:2:participant;2181\nserver.2=b:1:2:participant;2181\nversion=100000000\n"}
	read(t, "dataDir=/d\ndynamicConfigFile=/conf/dyn\n", dynamic).wants(t, "dynamic", map[string]string{"cluster.peers": "zk1=a:1,zk2=b:1", "node.name": "zk1", "listen.zookeeper": ":2181"})
	// A server that is the only one of its list needs no number.
	read(t, base+"server.7=a:1:2", nil).wants(t, "one", map[string]string{"cluster.peers": "zk7=a:1", "node.name": "zk7"})
}

const pems = "ssl.keyStore.location=/k.pem\nssl.trustStore.location=/ca.pem\n"

func TestTLSOfPEMFiles(t *testing.T) {
	files := map[string]string{"tls.cert": "/k.pem", "tls.key": "/k.pem", "tls.ca": "/ca.pem", "insecure": "-"}
	with := func(more map[string]string) map[string]string {
		for k, v := range files {
			if _, ok := more[k]; !ok {
				more[k] = v
			}
		}
		return more
	}
	for text, want := range map[string]map[string]string{
		"dataDir=/d\nsecureClientPort=2281\n" + pems: with(map[string]string{
			"listen.zookeeper": ":2281", "listen.zookeeper_tls": "-", "zookeeper.plaintext": "-", "tls.clients": "require", "listen.grpc": ":12281",
		}),
		base + "secureClientPort=2281\nssl.clientAuth=want\n" + pems: with(map[string]string{
			"listen.zookeeper": ":2181", "listen.zookeeper_tls": ":2281", "zookeeper.plaintext": "true", "tls.clients": "verify-if-given",
		}),
		base + "secureClientPort=2281\nsecureClientPortAddress=10.0.0.1\nssl.clientAuth=none\n" + pems: with(map[string]string{
			"listen.zookeeper_tls": "10.0.0.1:2281", "tls.clients": "none",
		}),
		base + "client.portUnification=true\n" + pems:                                                                                        with(map[string]string{"zookeeper.plaintext": "true", "listen.zookeeper_tls": "-"}),
		base + "sslQuorum=true\nssl.quorum.keyStore.location=/k.pem\nssl.quorum.trustStore.location=/ca.pem\n":                               with(map[string]string{"zookeeper.plaintext": "true"}),
		base + "secureClientPort=1\nssl.keyStore.location=/k\nssl.keyStore.type=PEM\nssl.trustStore.location=/ca\nssl.trustStore.type=pem\n": {"tls.cert": "/k", "tls.ca": "/ca"},
		base + pems: {"tls.cert": "-", "insecure": "true"},
	} {
		read(t, text, nil).wants(t, text, want)
	}
}

// TestWhatChangesTheMeaningIsRefused with the key named, and its line.
func TestWhatChangesTheMeaningIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		base + "skipACL=yes":             "zoo.cfg:3: skipACL=yes: ACLs are always checked",
		three + "group.1=1:2:3":          "group.1=1:2:3",
		three + "weight.1=2":             "weight.1=2",
		base + "server.1=a:1:2:observer": "at least one has to vote",
		base + "server.1=a:1:2:learner":  `"learner" is no role`,
		base + "peerType=observer":       "by itself has to vote",
		three + "peerType=nobody":        `"nobody" is no role`,
		base + "server.1=0.0.0.0:1:2":    "the same on all servers",
		base + "server.1=a":              "want host:port:port",
		base + "server.1=a:1:99999":      `"99999" is no port`,
		base + "server.x=a:1:2":          `"x" is no number`,
		base + "server.1=a:1:2;x":        `"x" is no port`,
		base + "server.1=[::1:1:2":       "[address]",
		three:                            "which server this is",
		"clientPort=2181":                "dataDir is missing",
		"dataDir=/d":                     "nowhere to connect",
		"dataDir=/d\nclientPort=0":       "nowhere to connect",
		"dataDir=/d\nclientPort=many":    `"many" is no port`,
		base + "tickTime=soon":           "whole number",
		base + "minSessionTimeout=9000\nmaxSessionTimeout=1000":                                  "above maxSessionTimeout",
		base + "maxClientCnxns=-1":                                                               "whole number",
		base + "jute.maxbuffer=99999999":                                                         "no znode may have more",
		base + "dynamicConfigFile=/none":                                                         "cannot be read",
		base + "secureClientPort=2281":                                                           "no ssl.keyStore.location",
		base + "secureClientPort=2281\nssl.keyStore.location=k.pem":                              "ssl.trustStore.location",
		base + "secureClientPort=1\nssl.keyStore.location=k.jks\nssl.trustStore.location=ca.pem": "this is JKS",
		base + "secureClientPort=1\nssl.keyStore.location=k.pem\nssl.trustStore.location=ca\nssl.trustStore.type=PKCS12": "this is PKCS12",
		base + "secureClientPort=1\nssl.clientAuth=maybe\n" + pems:                                                       "none, want and need",
		base + "secureClientPort=1\nsslQuorum=true\nssl.quorum.keyStore.location=/other.pem\n" + pems:                    "says something else",
		base + "ssl.crl=true":                      "revocation",
		base + "sessionRequireClientSASLAuth=true": "SASL",
		base + "quorum.auth.enableSasl=true":       "SASL",
		base + "enforce.auth.enabled=true":         "without an identity",
		base + "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider": "SASLAuthenticationProvider is not known",
		base + "authProvider.mine=com.example.Mine":                                         "Mine is not known",
		base + "DigestAuthenticationProvider.digestAlg=SHA-256":                             "SHA-1",
		base + "X509AuthenticationProvider.superUser=OU=ops":                                "common name",
		"dataDir=/d\nclientPort=2182\nserver.1=a:1:2;2181":                                  "own line says :2181",
		"dataDir=/d\nclientPort=2181\nserver.4=a:1:2\nserver.5=b:1:2\n#":                    "which server this is",
	} {
		r := read(t, text, nil)
		var said []string
		for _, n := range r.Refused {
			said = append(said, n.String())
		}
		if !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("%q: refused %q, want %q", text, said, want)
		}
	}
	for id, want := range map[string]string{"9": "no server.9", "x": "no number"} {
		r := read(t, three, disk{"/d/myid": id})
		if len(r.Refused) != 1 || !strings.Contains(r.Refused[0].String(), want) {
			t.Errorf("myid %s: %v", id, r.Refused)
		}
	}
	if r := read(t, base+"dynamicConfigFile=/dyn", disk{"/dyn": "clientPort=1"}); len(r.Refused) != 1 {
		t.Errorf("a dynamic configuration with other keys: %v", r.Refused)
	}
}

// TestEveryKeyIsTakenOrNamed: nothing of a file is passed over in silence.
func TestEveryKeyIsTakenOrNamed(t *testing.T) {
	for line, want := range map[string]string{
		"initLimit=10":                     "has no meaning here: a server that catches up",
		"autopurge.snapRetainCount=3":      "old snapshots",
		"netty.clientThreads=2":            "Netty",
		"dataLogDir=/logs":                 "one directory",
		"no.such.key=1":                    "not known here",
		"4lw.commands.whitelist=gtmk,stat": "gtmk: there is no trace mask",
		"tickTime=2\ntickTime=2000":        "comes again",
		"authProvider.1=org.apache.zookeeper.server.auth.X509AuthenticationProvider": "always there",
		"skipACL=no":            "it is so here",
		"admin.enableServer=on": "",
	} {
		r := read(t, base+line, disk{})
		var said []string
		for _, n := range r.Notes {
			said = append(said, n.String())
		}
		if all := strings.Join(said, "\n"); !strings.Contains(all, want) {
			t.Errorf("%s: %s, want %q", line, all, want)
		}
	}
	for key := range meaningless {
		if r := read(t, base+key+"=5", nil); len(r.Notes)+len(r.Refused) == 0 && key != "quorumListenOnAllIPs" && key != "client.portUnification" {
			t.Errorf("%s is passed over in silence", key)
		}
	}
}

// TestDataOfAZooKeeperIsNotPassedOver: an empty tree in the place of a full one is
// what nobody wants to find out later.
func TestDataOfAZooKeeperIsNotPassedOver(t *testing.T) {
	r := read(t, base, disk{"/d/version-2/snapshot.0": ""})
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0].Text, "coordctl import zookeeper") {
		t.Errorf("notes: %v", r.Notes)
	}
	r = read(t, base+"dataLogDir=/logs", disk{"/logs/version-2/log.1": ""})
	if len(r.Notes) != 2 || !strings.Contains(r.Notes[1].Text, "/logs/version-2") {
		t.Errorf("notes: %v", r.Notes)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	r := read(t, base+"ssl.keyStore.password=hunter2\nDigestAuthenticationProvider.superDigest=super:hash\nDigestAuthenticationProvider.superDigest=super:other", nil)
	for _, n := range append(r.Notes, r.Refused...) {
		if s := n.String(); strings.Contains(s, "hunter2") || strings.Contains(s, "hash") {
			t.Errorf("shown: %s", s)
		}
	}
}

func TestFormOfAFileIsDetected(t *testing.T) {
	for text, want := range map[string]bool{
		base:                            true,
		"# comment\n\n tickTime = 2000": true,
		"server.1=a:1:2":                true,
		"cluster:\n  name: a=b":         false,
		"cluster: {name: a=b}":          false,
		"insecure: true\ntickTime=2000": false,
		"{node: {name: a=b}}":           false,
		"":                              false,
		"# only=comments":               false,
		"- a=b":                         false,
		"\"a\"=b":                       false,
	} {
		if got := Detect([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestFileThatCannotBeReadIsAnError(t *testing.T) {
	if _, err := Read("zoo.cfg", []byte("a=\\u12"), disk{}.files()); err == nil {
		t.Error("half a character was read")
	}
	if _, err := Read("zoo.cfg", []byte("a=\\u12xy"), disk{}.files()); err == nil {
		t.Error("no character was read")
	}
}

func FuzzRead(f *testing.F) {
	for _, text := range []string{base, three, base + pems, "a\\", "server.1=", "a=\\u0041", "server.1=[::]:1:2;[::]:3"} {
		f.Add(text, "1")
	}
	f.Fuzz(func(t *testing.T, text, id string) {
		d := disk{"/d/myid": id}
		r, err := Read("zoo.cfg", []byte(text), d.files())
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, s := range r.Settings {
			if seen[s.Name] {
				t.Errorf("%s is set twice", s.Name)
			}
			seen[s.Name] = true
		}
	})
}
