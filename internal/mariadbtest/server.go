package mariadbtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/coordd/coord/internal/tempserver"
)

const (
	// User may do everything. No password is asked: the socket's directory lets
	// nobody else in.
	User = "root"
	// Database is the one that exists from the start and is empty.
	Database = "coord"

	socketName          = "socket"
	defaultStartTimeout = time.Minute

	// protocol is the first byte of what a server says that takes connections.
	protocol = 10
)

// Options change how a server runs. The zero value is ready.
type Options struct {
	// Dir is where the directory of the server is made; the system's directory
	// for temporary files if empty. Its path must be short (a socket lies in it)
	// and open to other users if the caller is root.
	Dir string
	// Settings are system variables of the server, on top of those that make a
	// throw-away server fast.
	Settings map[string]string
	// Log receives the server's log; nil drops it.
	Log io.Writer
	// StartTimeout bounds Start; zero is a minute.
	StartTimeout time.Duration
}

// Server is a running MariaDB. Its methods may be called from any goroutine.
type Server struct {
	dir     string // holds data and socket
	process *tempserver.Process

	closeOnce sync.Once
	closeErr  error
}

// Start makes a new directory of data and runs a server on it until Close. It
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

	s, err := start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("mariadbtest: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, o Options) (*Server, error) {
	programs, err := findPrograms()
	if err != nil {
		return nil, err
	}
	as, err := tempserver.Unprivileged("mysql", "nobody")
	if err != nil {
		return nil, err
	}
	dir, err := as.MakeDir(o.Dir, "coord-my-", socketName)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	if err := s.boot(ctx, programs, as, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// stopping asks for a stop in order, which waits for no client.
var stopping = []tempserver.Force{
	{Signal: syscall.SIGTERM, Wait: 10 * time.Second},
	{Signal: syscall.SIGKILL, Wait: 5 * time.Second},
}

func (s *Server) boot(ctx context.Context, programs programs, as tempserver.Account, o Options) error {
	data := filepath.Join(s.dir, "data")
	err := as.Run(ctx, s.dir, programs.install, append(s.common(data),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")...)
	if err != nil {
		return err
	}
	// The server takes a directory below its data for a database.
	if err := as.Run(ctx, s.dir, "mkdir", filepath.Join(data, Database)); err != nil {
		return err
	}
	s.process, err = as.Start(tempserver.Program{
		Path:     programs.server,
		Args:     s.arguments(data, o.Settings),
		Dir:      s.dir,
		Log:      o.Log,
		Orphaned: syscall.SIGKILL, // it has no processes or shared memory to leave behind
		Stop:     stopping,
	})
	if err != nil {
		return err
	}
	return s.process.WaitReady(ctx, s.answers)
}

// common are arguments of both programs. The first must be the first.
func (s *Server) common(data string) []string {
	return []string{
		"--no-defaults", "--datadir=" + data, "--tmpdir=" + s.dir,
		"--innodb-log-file-size=16M", "--innodb-buffer-pool-size=32M",
		"--innodb-flush-method=nosync", "--innodb-doublewrite=0",
	}
}

// arguments are those of the server. It listens on its socket only.
func (s *Server) arguments(data string, more map[string]string) []string {
	args := append(s.common(data),
		"--skip-networking",
		"--socket="+s.socket(),
		"--pid-file="+filepath.Join(s.dir, "pid"),
		"--skip-log-bin",
		"--skip-name-resolve",
		"--character-set-server=utf8mb4",
		"--innodb-flush-log-at-trx-commit=0",
		"--performance-schema=0",
		"--max-connections=200",
	)
	for name, value := range more {
		args = append(args, "--"+name+"="+value)
	}
	return args
}

// answers looks for a server's greeting, in the fifth byte after the length of
// the packet and its number.
func (s *Server) answers(ctx context.Context) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", s.socket())
	if err != nil {
		return false
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if conn.SetDeadline(deadline) != nil {
			return false
		}
	}
	var greeting [5]byte
	_, err = io.ReadFull(conn, greeting[:])
	return err == nil && greeting[4] == protocol
}

func (s *Server) socket() string { return filepath.Join(s.dir, socketName) }

// DSN returns the connection string for the named database and account, in the
// form of github.com/go-sql-driver/mysql and without parameters. Empty names are
// [Database] and [User].
func (s *Server) DSN(database, user string) string {
	if database == "" {
		database = Database
	}
	if user == "" {
		user = User
	}
	return fmt.Sprintf("%s@unix(%s)/%s", user, s.socket(), database)
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
