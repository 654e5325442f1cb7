package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/internal/tied"
	"github.com/coordd/coord/test/internal/smalldisk"
	"github.com/coordd/coord/test/internal/tunnet"
)

// node is one server. It may be started and ended again and again, by one
// goroutine at a time.
type node struct {
	r       *rig
	name    string
	dataDir string
	host    *tunnet.Host    // nil: loopback
	disk    *smalldisk.Disk // nil: a directory

	grpc, peer, http, zookeeper string // addresses

	mu      sync.Mutex // guards below
	process *os.Process
	done    chan struct{} // closed at the end of the process
	exit    error         // of it, then
	gaveUp  int           // how often it has ended by itself
	conn    *grpc.ClientConn
}

func (p *node) log() string { return filepath.Join(p.r.dir, p.name+".log") }

// command is the server's command line, behind the words of wrap.
func (p *node) command(wrap ...string) *exec.Cmd {
	args := append(wrap, coordd(p.r.t), "run", "--config", p.r.conf)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(),
		"COORDD_NODE_NAME="+p.name, "COORDD_NODE_DATA_DIR="+p.dataDir,
		"COORDD_LISTEN_GRPC="+p.grpc, "COORDD_LISTEN_HTTP="+p.http, "COORDD_LISTEN_ZOOKEEPER="+p.zookeeper,
		"COORDD_RAFT_LOG_STORE="+p.r.logStore,
	)
	return cmd
}

// start runs the server, under another program if wrap names one; it does not
// wait until it serves. One that runs stays as it is.
func (p *node) start(wrap ...string) {
	p.r.t.Helper()
	if p.running() {
		return
	}
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.r.t.Fatal(err)
	}
	defer log.Close()
	cmd := p.command(wrap...)
	cmd.Stdout, cmd.Stderr = log, log
	if p.host != nil {
		err = p.host.Start(cmd)
	} else {
		err = tied.Start(cmd, syscall.SIGKILL)
	}
	if err != nil {
		p.r.t.Fatal(err)
	}
	p.r.tell("%s started, pid %d", p.name, cmd.Process.Pid)
	done := make(chan struct{})
	p.mu.Lock()
	p.process, p.done, p.exit = cmd.Process, done, nil
	p.mu.Unlock()
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.exit = err
		if cmd.ProcessState.ExitCode() > 0 {
			p.gaveUp++
		}
		p.mu.Unlock()
		p.r.tell("%s ended: %v", p.name, err)
		close(done)
	}()
}

func (p *node) state() (*os.Process, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process, p.done
}

func (p *node) running() bool {
	_, done := p.state()
	if done == nil {
		return false
	}
	select {
	case <-done:
		return false
	default:
		return true
	}
}

func (p *node) pid() int {
	proc, _ := p.state()
	return proc.Pid
}

// signal sends sig; a server that has ended is left alone.
func (p *node) signal(sig syscall.Signal) {
	if proc, _ := p.state(); p.running() {
		_ = proc.Signal(sig)
	}
}

// kill ends the server with kill -9, and waits for the end.
func (p *node) kill() {
	p.signal(syscall.SIGKILL)
	if _, done := p.state(); done != nil {
		<-done
	}
}

// ended waits for the end of the process, and says whether it came in time.
func (p *node) ended(limit time.Duration) bool {
	_, done := p.state()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}

// stopForPowerCut keeps the server from seeing that its disk goes first.
func (p *node) stopForPowerCut() { p.signal(syscall.SIGSTOP) }

// powerCut ends the server and makes its disk forget what was not synced.
func (p *node) powerCut() error {
	p.stopForPowerCut()
	err := p.disk.PowerOff()
	p.kill()
	if err != nil {
		return err
	}
	return p.disk.Repair()
}

// wipe makes the data directory empty, so that the server comes back as new.
func (p *node) wipe() error { return os.RemoveAll(p.dataDir) }

// client is a connection to the server, made once.
func (p *node) client() (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		return p.conn, nil
	}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		if p.r.oracle != nil {
			return p.r.oracle.Dial(ctx, address)
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	}
	conn, err := grpc.NewClient("passthrough:///"+p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial), grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, err
	}
	p.conn = conn
	p.r.t.Cleanup(func() { conn.Close() })
	return conn, nil
}

// status asks the server how it is.
func (p *node) status() (*coordpb.StatusReply, error) {
	conn, err := p.client()
	if err != nil {
		return nil, err
	}
	conn.ResetConnectBackoff()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return coordpb.NewAdminClient(conn).Status(ctx, &coordpb.StatusRequest{})
}

// ready returns nil when the server serves, and all servers vote.
func (p *node) ready() error {
	if !p.running() {
		p.mu.Lock()
		defer p.mu.Unlock()
		return fmt.Errorf("it does not run: %v", p.exit) //nolint:errorlint // for the message
	}
	st, err := p.status()
	switch {
	case err != nil:
		return err
	case !st.GetReady() || !st.GetMembersFromLeader():
		return fmt.Errorf("not ready: %s %v", st.GetWaiting(), st.GetChecks())
	case len(st.GetMembers()) != len(p.r.nodes):
		return fmt.Errorf("%d members", len(st.GetMembers()))
	}
	for _, m := range st.GetMembers() {
		if m.GetRole() != coordpb.Member_ROLE_LEADER && m.GetRole() != coordpb.Member_ROLE_VOTER {
			return fmt.Errorf("%s is %s", m.GetName(), m.GetRole())
		}
	}
	return nil
}
