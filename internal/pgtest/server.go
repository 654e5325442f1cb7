package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coordd/coord/internal/tempserver"
)

const (
	// User is the superuser of the server. No password is asked: the socket's
	// directory lets nobody else in.
	User = "coord"
	// Database is the one that exists from the start.
	Database = "postgres"

	// port is part of the socket's name, and no port at all.
	port       = "5432"
	socketName = ".s.PGSQL." + port

	defaultStartTimeout = time.Minute
)

// Options change how a server runs. The zero value is ready.
type Options struct {
	// Dir is where the directory of the server is made; the system's directory
	// for temporary files if empty. Its path must be short (a socket lies in it)
	// and open to other users if the caller is root.
	Dir string
	// Settings are settings of postgresql.conf, on top of those that make a
	// throw-away server fast.
	Settings map[string]string
	// Log receives the server's log; nil drops it.
	Log io.Writer
	// StartTimeout bounds Start; zero is a minute.
	StartTimeout time.Duration
}

// Server is a running PostgreSQL. Its methods may be called from any goroutine.
type Server struct {
	dir     string // holds data and socket
	process *tempserver.Process

	closeOnce sync.Once
	closeErr  error
}

// Start makes a new database cluster and runs a server on it until Close. It
// returns when the server takes connections. It returns [ErrNotInstalled] where
// there is none, and after any error nothing is left.
//
// ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Server, error) {
	timeout := o.StartTimeout
	if timeout <= 0 {
		timeout = defaultStartTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	bin, err := binDir()
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	as, err := tempserver.Unprivileged("postgres", "nobody")
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	s, err := start(ctx, bin, as, o)
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, bin string, as tempserver.Account, o Options) (*Server, error) {
	dir, err := as.MakeDir(o.Dir, "coord-pg-", socketName)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	if err := s.boot(ctx, bin, as, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// stopping uses PostgreSQL's names for its signals: fast rolls all transactions
// back and stops in order, immediate stops at once, and SIGKILL is for what
// hears neither.
var stopping = []tempserver.Force{
	{Signal: syscall.SIGINT, Wait: 10 * time.Second},
	{Signal: syscall.SIGQUIT, Wait: 5 * time.Second},
	{Signal: syscall.SIGKILL, Wait: 5 * time.Second},
}

func (s *Server) boot(ctx context.Context, bin string, as tempserver.Account, o Options) error {
	data := filepath.Join(s.dir, "data")
	err := as.Run(ctx, s.dir, filepath.Join(bin, "initdb"), "--pgdata", data, "--username", User,
		"--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions")
	if err != nil {
		return err
	}
	s.process, err = as.Start(tempserver.Program{
		Path: filepath.Join(bin, "postgres"),
		Args: s.arguments(data, o.Settings),
		Dir:  s.dir,
		Log:  o.Log,
		// Unlike SIGKILL this leaves no processes and no shared memory behind.
		Orphaned: syscall.SIGQUIT,
		Stop:     stopping,
	})
	if err != nil {
		return err
	}
	return s.process.WaitReady(ctx, s.answers)
}

// arguments are those of the server. It listens on its socket only.
func (s *Server) arguments(data string, more map[string]string) []string {
	settings := map[string]string{
		"listen_addresses":        "",
		"unix_socket_directories": s.dir,
		"port":                    port,
		"fsync":                   "off",
		"full_page_writes":        "off",
		"synchronous_commit":      "off",
		"shared_buffers":          "32MB",
		"max_connections":         "100",
	}
	for name, value := range more {
		settings[name] = value
	}
	args := []string{"-D", data}
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	return args
}

// answers says the first words of PostgreSQL's protocol and looks for the
// answer R (go on); while it starts up a server answers E (error).
func (s *Server) answers(ctx context.Context) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(s.dir, socketName))
	if err != nil {
		return false
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if conn.SetDeadline(deadline) != nil {
			return false
		}
	}
	if _, err := conn.Write(startupMessage()); err != nil {
		return false
	}
	var kind [1]byte
	_, err = io.ReadFull(conn, kind[:])
	return err == nil && kind[0] == 'R'
}

// startupMessage is length, protocol version 3.0, and the parameters.
func startupMessage() []byte {
	body := "\x00\x03\x00\x00user\x00" + User + "\x00database\x00" + Database + "\x00\x00"
	return append([]byte{0, 0, 0, byte(len(body) + 4)}, body...)
}

// DSN returns the connection string for the named database, in the key=value
// form that all drivers read. An empty name is [Database].
func (s *Server) DSN(database string) string {
	if database == "" {
		database = Database
	}
	return fmt.Sprintf("host=%s port=%s user=%s dbname=%s sslmode=disable", quote(s.dir), port, User, quote(database))
}

// quote writes a value of a connection string.
func quote(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}

// Pid returns the process id of the server.
func (s *Server) Pid() int { return s.process.Pid() }

// Done is closed when the server has ended, by Close or by itself.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Close stops the server and deletes its data. It may be called more than once.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		var stopped error
		if s.process != nil {
			stopped = s.process.Stop()
		}
		s.closeErr = errors.Join(stopped, os.RemoveAll(s.dir))
	})
	return s.closeErr
}
