package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/contexts"
)

const defaultEndpoint = "127.0.0.1:7420"

// env is what all commands share: the streams, the global flags and the
// context that they come from.
type env struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer

	endpoints  []string
	context    string
	cacert     string
	cert       string
	key        string
	serverName string
	authFile   string
	timeout    time.Duration
	output     string
	json       bool
	color      string
	noHeaders  bool
	quiet      bool
	verbose    bool
	yes        bool
	stale      bool

	started bool   // the command line was understood
	command string // as cobra names it, once started
}

func newEnv(stdin io.Reader, stdout, stderr io.Writer) *env {
	return &env{stdin: stdin, stdout: stdout, stderr: stderr}
}

func (e *env) addGlobalFlags(f *pflag.FlagSet) {
	f.StringSliceVarP(&e.endpoints, "endpoints", "e", nil, "servers to use, as host:port,host:port")
	f.StringVar(&e.context, "context", "", "named cluster to use")
	f.StringVar(&e.cacert, "cacert", "", "PEM file of the authorities that sign the servers' certificates")
	f.StringVar(&e.cert, "cert", "", "PEM file of the client's certificate")
	f.StringVar(&e.key, "key", "", "PEM file of the client's key")
	f.StringVar(&e.serverName, "server-name", "", "name that the servers' certificates must have")
	f.StringVar(&e.authFile, "auth-file", "", "file with user:password for digest ACLs")
	f.DurationVar(&e.timeout, "timeout", 5*time.Second, "time limit of one request")
	f.StringVarP(&e.output, "output", "o", "table", "table, wide, json, ndjson or raw")
	f.BoolVar(&e.json, "json", false, "same as --output json")
	f.StringVar(&e.color, "color", "auto", "auto, always or never")
	f.BoolVar(&e.noHeaders, "no-headers", false, "tables without their first line")
	f.BoolVarP(&e.quiet, "quiet", "q", false, "no hints and notes on standard error")
	f.BoolVarP(&e.verbose, "verbose", "v", false, "log what the client does")
	f.BoolVarP(&e.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&e.stale, "stale", false, "read from any server, also without a quorum")
}

// checkFlags fills in the environment and refuses values that no command takes.
// global are the global flags, and own the command's, which may take the place
// of a global one.
func (e *env) checkFlags(global, own *pflag.FlagSet) error {
	if err := fromEnvironment(global, own); err != nil {
		return err
	}
	if e.json && e.output == "table" {
		e.output = "json"
	}
	if !slices.Contains([]string{"table", "wide", "json", "ndjson", "raw"}, e.output) {
		return usagef("--output: %q is none of table, wide, json, ndjson, raw", e.output)
	}
	if !slices.Contains([]string{"auto", "always", "never"}, e.color) {
		return usagef("--color: %q is none of auto, always, never", e.color)
	}
	if e.timeout <= 0 {
		return usagef("--timeout: %s is not above zero", e.timeout)
	}
	return nil
}

// fromEnvironment gives global flags that are not on the command line the value
// of their variable: COORDCTL_SERVER_NAME for --server-name.
func fromEnvironment(global, own *pflag.FlagSet) error {
	var err error
	global.VisitAll(func(flag *pflag.Flag) {
		name := "COORDCTL_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		value := os.Getenv(name)
		if flag.Changed || own.Changed(flag.Name) || value == "" || err != nil {
			return
		}
		if e := flag.Value.Set(value); e != nil {
			err = usagef("%s: %w", name, e)
		}
	})
	return err
}

// target is the cluster to use and how to reach it.
type target struct {
	contexts.Context
	name string // of the context, "" if none is used
}

// resolve applies flags, environment, context and default, in this order.
func (e *env) resolve() (target, error) {
	var t target
	path, err := contexts.Path()
	if err != nil {
		if e.context != "" {
			return t, err
		}
		path = os.DevNull
	}
	f, err := contexts.Load(path)
	if err != nil {
		return t, err
	}
	name := e.context
	if name == "" && len(e.endpoints) == 0 {
		name = f.Current
	}
	if name != "" {
		c, ok := f.Contexts[name]
		if !ok {
			return t, usagef("no context %q\nhint: `coordctl context ls` lists them", name)
		}
		t.Context, t.name = c, name
	}
	t.override(e)
	return t, nil
}

func (t *target) override(e *env) {
	for _, f := range []struct {
		flag  string
		field *string
	}{{e.cacert, &t.CACert}, {e.cert, &t.Cert}, {e.key, &t.Key}, {e.serverName, &t.ServerName}, {e.authFile, &t.AuthFile}} {
		if f.flag != "" {
			*f.field = f.flag
		}
	}
	if len(e.endpoints) > 0 {
		t.Endpoints = e.endpoints
	}
	if len(t.Endpoints) == 0 {
		t.Endpoints = []string{defaultEndpoint}
	}
}

// options turns the target into client options.
func (t *target) options(e *env) ([]client.Option, error) {
	opts := []client.Option{client.FailFast(), client.WithLogger(e.logger())}
	if t.CACert != "" || t.Cert != "" || t.Key != "" {
		opts = append(opts, client.WithTLSFiles(t.CACert, t.Cert, t.Key))
	}
	if t.ServerName != "" {
		opts = append(opts, client.WithServerName(t.ServerName))
	}
	if t.AuthFile != "" {
		secret, err := os.ReadFile(t.AuthFile)
		if err != nil {
			return nil, usagef("--auth-file: %w", err)
		}
		opts = append(opts, client.WithAuth("digest", []byte(strings.TrimSpace(string(secret)))))
	}
	if e.stale {
		opts = append(opts, client.WithReads(client.ReadStale))
	}
	return opts, nil
}

func (e *env) logger() *slog.Logger {
	level := slog.LevelError + 4 // the client's errors are returned, and reported once
	if e.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: level}))
}

// repeatable lets the client send a write again when its answer is lost.
func repeatable(ctx context.Context) context.Context {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	return client.WithRequestID(ctx, "coordctl-"+hex.EncodeToString(id[:]))
}

// note says something for people on standard error, unless they do not want to
// hear it.
func (e *env) note(format string, args ...any) {
	if !e.quiet {
		e.warn(format, args...)
	}
}

// warn says what nobody may miss.
func (e *env) warn(format string, args ...any) {
	fmt.Fprintf(e.stderr, "coordctl: "+format+"\n", args...)
}

// data reads a DATA argument: text, - for standard input, @FILE for a file.
// Without one the node holds null.
func (e *env) data(args []string) ([]byte, error) {
	if len(args) == 0 {
		return nil, nil
	}
	switch arg := args[0]; {
	case arg == "-":
		b, err := io.ReadAll(e.stdin)
		if err == nil && b == nil {
			b = []byte{}
		}
		return b, err
	case strings.HasPrefix(arg, "@"):
		b, err := os.ReadFile(arg[1:])
		if err != nil {
			return nil, usagef("%w", err)
		}
		return b, nil
	default:
		return []byte(arg), nil
	}
}
