package tunnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host is a network namespace with one address. Its methods may be called from
// any goroutine.
type Host struct {
	name string
	addr netip.Addr
	tun  *os.File
	ns   *os.File
	work chan func() // done on the host's own thread
}

// newHost makes a namespace. Its thread lives as long as the host, so that the
// processes that it starts can be bound to its life.
func newHost(name string, addr netip.Addr) (*Host, error) {
	h := &Host{name: name, addr: addr, work: make(chan func())}
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the host
		made <- h.make()
		for f := range h.work {
			f()
		}
	}()
	if err := <-made; err != nil {
		close(h.work)
		return nil, err
	}
	return h, nil
}

// make runs on the host's thread.
func (h *Host) make() (err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("new namespace: %w", err)
	}
	if h.ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return err
	}
	if h.tun, err = openTun("eth0"); err != nil {
		return errors.Join(err, h.ns.Close())
	}
	if err := errors.Join(configure("lo", netip.Addr{}), configure("eth0", h.addr)); err != nil {
		return errors.Join(err, h.ns.Close(), h.tun.Close())
	}
	return nil
}

func openTun(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// configure gives a device of this thread's namespace its address, if that is
// valid, and switches it on.
func configure(name string, addr netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	set := func(what uint, value func(*unix.Ifreq) error) {
		var req *unix.Ifreq
		if err == nil {
			req, err = unix.NewIfreq(name)
		}
		if err == nil {
			err = value(req)
		}
		if err == nil {
			err = unix.IoctlIfreq(fd, what, req)
		}
	}
	if addr.IsValid() {
		a := addr.As4()
		set(unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(a[:]) })
		set(unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 0, 0}) })
		set(unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(mtu); return nil })
	}
	set(unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil })
	if err != nil {
		return fmt.Errorf("switch %s on: %w", name, err)
	}
	return nil
}

// Name is what the host was called.
func (h *Host) Name() string { return h.name }

// IP is the address of the host.
func (h *Host) IP() string { return h.addr.String() }

// Start starts a process in the host. The kernel kills it when this process ends.
// cmd.Wait is for the caller, as after cmd.Start.
func (h *Host) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	done := make(chan error)
	h.work <- func() { done <- cmd.Start() }
	return <-done
}

// Dial connects from the host to an address whose host is an IP.
func (h *Host) Dial(ctx context.Context, address string) (c net.Conn, err error) {
	nsErr := inNamespace(int(h.ns.Fd()), func() {
		var d net.Dialer
		c, err = d.DialContext(ctx, "tcp", address)
	})
	return c, errors.Join(nsErr, err)
}

// Listen listens in the host.
func (h *Host) Listen(port int) (l net.Listener, err error) {
	nsErr := inNamespace(int(h.ns.Fd()), func() {
		l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", h.addr, port)) //nolint:noctx // in tests, and it does not block
	})
	return l, errors.Join(nsErr, err)
}

func (h *Host) close() error {
	close(h.work)
	return errors.Join(h.tun.Close(), h.ns.Close())
}
