package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/test/internal/child"
	"github.com/coordd/coord/test/internal/smalldisk"
	"github.com/coordd/coord/test/internal/tunnet"
)

// node is one server. It may be started and ended again and again, by one
// goroutine at a time.
type node struct {
	child.Process
	r       *rig
	name    string
	dataDir string
	host    *tunnet.Host    // nil: loopback
	disk    *smalldisk.Disk // nil: a directory

	grpc, peer, http, zookeeper string // addresses

	gaveUp atomic.Int32 // how often it has ended by itself

	mu   sync.Mutex // guards below
	conn *grpc.ClientConn
}

func (p *node) log() string { return filepath.Join(p.r.dir, p.name+".log") }

// command is the server's command line, behind the words of wrap.
func (p *node) command(wrap ...string) *exec.Cmd {
	args := append(wrap, child.Program(p.r.t, "coordd"), "run", "--config", p.r.conf)
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
	if p.Running() {
		return
	}
	var begin func(*exec.Cmd) error
	if p.host != nil {
		begin = p.host.Start
	}
	if err := p.Start(p.command(wrap...), p.log(), begin); err != nil {
		p.r.t.Fatal(err)
	}
	p.r.tell("%s started, pid %d", p.name, p.Pid())
}

// hasEnded writes down each end of the process.
func (p *node) hasEnded(how *os.ProcessState) {
	if how.ExitCode() > 0 {
		p.gaveUp.Add(1)
	}
	p.r.tell("%s ended: %v", p.name, how)
}

// stopForPowerCut keeps the server from seeing that its disk goes first. Threads
// stop when they next come by the kernel: on a busy machine a while after the signal.
func (p *node) stopForPowerCut() {
	p.Signal(syscall.SIGSTOP)
	for end := time.Now().Add(10 * time.Second); p.Running() && !p.standsStill() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// standsStill says whether all threads are stopped, or wait for a disk: those stop
// before they have seen what comes of it.
func (p *node) standsStill() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid()))
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		at := strings.LastIndexByte(string(text), ')') + 2 // behind the name
		if err != nil || at >= len(text) || !strings.ContainsRune("TtDZX", rune(text[at])) {
			return false // if it has ended meanwhile, others may have begun
		}
	}
	return err == nil
}

// powerCut ends the server and makes its disk forget what was not synced.
func (p *node) powerCut() error {
	p.stopForPowerCut()
	err := p.disk.PowerOff()
	p.Kill()
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
	if !p.Running() {
		return fmt.Errorf("it does not run: %v", p.State())
	}
	st, err := p.status()
	if err != nil {
		return err
	}
	return child.Ready(st, len(p.r.nodes))
}
