package main

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/tlsfiles"
	"github.com/coordd/coord/internal/zkimport"
	"github.com/coordd/coord/znode"
)

func newImportCmd(e *env) *cobra.Command {
	return parent("import", "Copy a tree from another service, and compare afterwards",
		newImportZooKeeperCmd(e),
		parent("verify", "Compare a tree with the one it was copied from", newVerifyZooKeeperCmd(e)))
}

// importOptions say what is copied from where to where.
type importOptions struct {
	hosts     []string
	path      string
	under     string
	dryRun    bool
	overwrite bool

	authFile   string
	useTLS     bool
	files      tlsfiles.Files
	serverName string
}

const importSourceHelp = `HOSTS are servers of the ensemble, as zk1:2181,zk2:2181; the port is 2181 unless
given. One of them is read from, and another if that one goes away. A chroot behind
the hosts is not taken: --path says it.

--source-auth-file has lines of user:password, and should have the ensemble's
superuser: others see neither what they may not read nor the hashes in ACLs, and
an ACL without them is not copied. Global flags are about the cluster; those that
begin with --source about the ensemble.`

// addSourceFlags adds what import and verify have in common.
func (o *importOptions) addSourceFlags(f *pflag.FlagSet) {
	f.StringVar(&o.path, "path", "/", "top of the subtree in the ensemble")
	f.StringVar(&o.under, "under", "", "where the top of the subtree stands in the cluster (default: --path)")
	f.StringVar(&o.authFile, "source-auth-file", "", "file with lines of user:password for the ensemble")
	f.BoolVar(&o.useTLS, "source-tls", false, "talk TLS to the ensemble, with the system's authorities")
	f.StringVar(&o.files.CA, "source-cacert", "", "PEM file of the authorities that sign the ensemble's certificates")
	f.StringVar(&o.files.Cert, "source-cert", "", "PEM file of the client's certificate for the ensemble")
	f.StringVar(&o.files.Key, "source-key", "", "PEM file of its key")
	f.StringVar(&o.serverName, "source-server-name", "", "name that the ensemble's certificates must have")
}

// check refuses what makes no sense and fills in defaults.
func (o *importOptions) check(e *env, hosts string) error {
	if o.under == "" {
		o.under = o.path
	}
	for _, path := range []struct{ flag, value string }{{"--path", o.path}, {"--under", o.under}} {
		if err := znode.ValidatePath(path.value); err != nil {
			return usagef("%s: %w", path.flag, err)
		}
		if path.value == "/zookeeper" || strings.HasPrefix(path.value, "/zookeeper/") {
			return usagef("%s: /zookeeper belongs to the service and is not copied (quotas come with the znodes that have them)", path.flag)
		}
	}
	if e.stale {
		return usagef("--stale: what is compared has to be what there is")
	}
	var err error
	o.hosts, err = parseHosts(hosts)
	return err
}

// parseHosts reads a connect string of ZooKeeper's.
func parseHosts(text string) ([]string, error) {
	if host, chroot, ok := strings.Cut(text, "/"); ok {
		return nil, usagef("%q: a chroot is not taken here\nhint: %s --path /%s", text, host, chroot)
	}
	var hosts []string
	for _, h := range strings.Split(text, ",") {
		h = strings.TrimSpace(h)
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), "2181")
		}
		host, port, err := net.SplitHostPort(h)
		if err != nil || host == "" || port == "" {
			return nil, usagef("%q is no list of host:port,host:port", text)
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// source connects to the ensemble.
func (o *importOptions) source(ctx context.Context, e *env) (*zkimport.Source, error) {
	cfg := zkimport.SourceConfig{Hosts: o.hosts}
	if o.authFile != "" {
		text, err := os.ReadFile(o.authFile)
		if err != nil {
			return nil, usagef("--source-auth-file: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" {
				cfg.Digests = append(cfg.Digests, line)
			}
		}
	}
	if o.useTLS || !o.files.Zero() || o.serverName != "" {
		var err error
		if cfg.TLS, err = o.tls(e); err != nil {
			return nil, usagef("%w", err)
		}
	}
	return zkimport.Open(ctx, cfg)
}

func (o *importOptions) tls(e *env) (*tls.Config, error) {
	if err := o.files.Validate(false); err != nil {
		return nil, err
	}
	files, err := tlsfiles.Open(o.files, 0, e.logger())
	if err != nil {
		return nil, err
	}
	defer files.Close() // the configuration goes on with what was read
	return files.Client(o.serverName), nil
}

// survey reads the ensemble and calls f with what it found and a client with a
// session, while telling how far it is.
func (e *env) survey(ctx context.Context, o *importOptions, f func(context.Context, *zkimport.Survey, *client.Client, *teller) error) error {
	var progress zkimport.Progress
	t := e.tell(&progress)
	defer t.stop()
	s, err := o.source(ctx, e)
	if err != nil {
		return err
	}
	defer s.Close()
	c, err := e.dialWith(ctx, client.WithSessionName("coordctl import"))
	if err != nil {
		return err
	}
	v, err := zkimport.Look(ctx, s, o.path, &progress)
	if err == nil {
		err = f(ctx, v, c, t)
	}
	return joinClose(e.diagnose(ctx, err), c.Close())
}
