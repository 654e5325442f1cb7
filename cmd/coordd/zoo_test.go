package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// writeZoo makes a zoo.cfg whose dataDir is in the test's own folder.
func writeZoo(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(filepath.Join(dir, "myid"), []byte("2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("dataDir="+dir+"\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// coordd runs a command line and returns exit code, output and errors.
func coordd(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), args, &o, &e)
	return code, o.String(), e.String()
}

const ensemble = "tickTime=2000\nclientPort=2181\ninitLimit=10\nmaxClientCnxns=0\n4lw.commands.whitelist=stat,ruok\n" +
	"DigestAuthenticationProvider.superDigest=super:hash=\nserver.1=a:2888:3888\nserver.2=b:2888:3888\nserver.3=c:2888:3888\n"

// TestConvertedConfigurationMeansTheSame: the YAML that is printed is read as the
// zoo.cfg itself is.
func TestConvertedConfigurationMeansTheSame(t *testing.T) {
	zoo := writeZoo(t, ensemble)
	code, yaml, errs := coordd(t, "config", "convert", zoo)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	if !strings.Contains(yaml, "initLimit=10: has no meaning here") {
		t.Errorf("a key without a meaning is not named:\n%s", yaml)
	}
	converted := filepath.Join(t.TempDir(), "coordd.yaml")
	if err := os.WriteFile(converted, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	var have [2]map[string]string
	for i, file := range []string{zoo, converted} {
		have[i] = map[string]string{}
		var f configFlags
		f.add(pflag.NewFlagSet("", pflag.ContinueOnError))
		f.file = file
		_, all, err := f.load()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			have[i][s.name] = s.String()
		}
	}
	for name, want := range have[0] {
		if have[1][name] != want {
			t.Errorf("%s: %q in the zoo.cfg, %q converted", name, want, have[1][name])
		}
	}
	if have[0]["cluster.peers"] != "zk1=a:2888,zk2=b:2888,zk3=c:2888" || have[0]["node.name"] != "zk2" {
		t.Errorf("peers %s, name %s", have[0]["cluster.peers"], have[0]["node.name"])
	}
}

func TestZooCfgThatWouldChangeItsMeaningIsRefused(t *testing.T) {
	zoo := writeZoo(t, ensemble+"skipACL=yes\ngroup.1=1:2\n")
	for _, args := range [][]string{{"config", "convert", zoo}, {"config", "check", zoo}, {"run", zoo}, {"run", "--config", zoo}} {
		code, _, errs := coordd(t, args...)
		if code != exitUsage || !strings.Contains(errs, "skipACL=yes") || !strings.Contains(errs, "group.1") {
			t.Errorf("%v: exit code %d: %s", args, code, errs)
		}
	}
	if _, out, _ := coordd(t, "config", "convert", zoo); !strings.Contains(out, "# refused: ") || !strings.Contains(out, "zk3=c:2888") {
		t.Errorf("what is right is not printed, or what is wrong is not named:\n%s", out)
	}
}

func TestZooCfgIsCheckedAsEveryConfigurationIs(t *testing.T) {
	for line, want := range map[string]string{
		"coordd.no.such=1":               `no setting "no.such"`,
		"coordd.raft.heartbeat=soon":     "not a duration",
		"coordd.raft.log_store=paper":    "raft.log_store",
		"coordd.limits.node_size=1GiB":   "limits.node_size",
		"admin.serverPort=none":          "no port",
		"secureClientPort=2281":          "ssl.keyStore.location",
		"coordd.listen.zookeeper_tls=:1": "listen.zookeeper_tls",
	} {
		code, _, errs := coordd(t, "config", "check", writeZoo(t, ensemble+line+"\n"))
		if code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s", line, code, errs)
		}
	}
	code, out, errs := coordd(t, "config", "check", writeZoo(t, ensemble+"my.own.key=1\n"))
	if code != 0 || !strings.Contains(out, "my.own.key=1: is not known here") || strings.Contains(out, "initLimit") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

func TestEnvironmentAndFlagsBeatAZooCfg(t *testing.T) {
	t.Setenv("COORDD_SESSION_MAX", "55s")
	_, out, errs := coordd(t, "config", "show", writeZoo(t, ensemble), "--listen-http", "127.0.0.1:1")
	for _, want := range []string{"55s", "flag --listen-http", "environment COORDD_SESSION_MAX", "zoo.cfg:2 tickTime"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s%s", want, out, errs)
		}
	}
	if strings.Contains(out, "super:hash") {
		t.Error("the superuser's digest is shown")
	}
}
