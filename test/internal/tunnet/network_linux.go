package tunnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnsupported is returned by New where such a network cannot be had.
var ErrUnsupported = errors.New("no network of namespaces here")

// mtu of the devices: larger than Ethernet's, because each packet costs this
// process two system calls.
const mtu = 9000

// Network joins hosts. Its methods may be called from any goroutine.
type Network struct {
	mu    sync.RWMutex
	hosts map[netip.Addr]*Host
	links map[[2]netip.Addr]Link // from, to
	wg    sync.WaitGroup

	rndMu sync.Mutex
	rnd   *rand.Rand

	carried, lost, repeated atomic.Int64
}

// New makes a network without hosts. The seed decides which packets are lost.
// Close takes it down.
func New(seed uint64) (*Network, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: it needs root", ErrUnsupported)
	}
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return &Network{
		hosts: map[netip.Addr]*Host{}, links: map[[2]netip.Addr]Link{}, rnd: rand.New(rand.NewPCG(seed, 0)),
	}, nil
}

// Host adds a host. Its name is for messages only.
func (n *Network) Host(name string) (*Host, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	number := len(n.hosts) + 1
	if number > 250 {
		return nil, errors.New("too many hosts")
	}
	h, err := newHost(name, netip.AddrFrom4([4]byte{10, 77, 0, byte(number)}))
	if err != nil {
		return nil, fmt.Errorf("%w: host %s: %w", ErrUnsupported, name, err)
	}
	n.hosts[h.addr] = h
	n.wg.Go(func() { n.carry(h) })
	return h, nil
}

// Set changes how packets go from one host to another; the other direction stays
// as it is. Packets that are delayed already keep their delay.
func (n *Network) Set(from, to *Host, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l == (Link{}) {
		delete(n.links, [2]netip.Addr{from.addr, to.addr})
		return
	}
	n.links[[2]netip.Addr{from.addr, to.addr}] = l
}

// SetBoth changes both directions.
func (n *Network) SetBoth(a, b *Host, l Link) {
	n.Set(a, b, l)
	n.Set(b, a, l)
}

// Heal makes every link as it was at first.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.links)
}

// Counts says how many packets were carried, lost on purpose, and repeated.
func (n *Network) Counts() (carried, lost, repeated int64) {
	return n.carried.Load(), n.lost.Load(), n.repeated.Load()
}

// Close takes the devices away. Processes in the hosts should have ended.
func (n *Network) Close() error {
	n.mu.Lock()
	var errs []error
	for _, h := range n.hosts {
		errs = append(errs, h.close())
	}
	n.mu.Unlock()
	n.wg.Wait()
	return errors.Join(errs...)
}

// carry takes the packets that a host sends until its device is closed.
func (n *Network) carry(from *Host) {
	buf := make([]byte, mtu+64)
	for {
		size, err := from.tun.Read(buf)
		if err != nil {
			return
		}
		if to := n.destination(buf[:size]); to != nil {
			n.send(from, to, buf[:size])
		}
	}
}

// destination is the host that an IPv4 packet is for, nil if there is none.
func (n *Network) destination(packet []byte) *Host {
	const minHeader, dstOffset = 20, 16
	if len(packet) < minHeader || packet[0]>>4 != 4 {
		return nil
	}
	var a [4]byte
	binary.NativeEndian.PutUint32(a[:], binary.NativeEndian.Uint32(packet[dstOffset:]))
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.hosts[netip.AddrFrom4(a)]
}

func (n *Network) send(from, to *Host, packet []byte) {
	n.mu.RLock()
	l, special := n.links[[2]netip.Addr{from.addr, to.addr}]
	n.mu.RUnlock()
	if !special {
		n.deliver(to, packet)
		return
	}
	lose, twice, late := n.chance(l)
	if lose {
		n.lost.Add(1)
		return
	}
	copies := 1
	if twice {
		copies = 2
		n.repeated.Add(1)
	}
	for range copies {
		n.after(late, to, packet)
	}
}

// chance throws the dice for one packet.
func (n *Network) chance(l Link) (lose, twice bool, late time.Duration) {
	n.rndMu.Lock()
	defer n.rndMu.Unlock()
	lose = l.Cut || n.rnd.Float64() < l.Loss
	twice = n.rnd.Float64() < l.Repeat
	late = l.Delay
	if l.Jitter > 0 {
		late += time.Duration(n.rnd.Int64N(int64(l.Jitter)))
	}
	return lose, twice, late
}

func (n *Network) after(late time.Duration, to *Host, packet []byte) {
	if late <= 0 {
		n.deliver(to, packet)
		return
	}
	kept := append([]byte(nil), packet...)
	time.AfterFunc(late, func() { n.deliver(to, kept) })
}

// deliver gives a packet to the kernel of a host. What it does not take is lost,
// as on any wire.
func (n *Network) deliver(to *Host, packet []byte) {
	if _, err := to.tun.Write(packet); err == nil {
		n.carried.Add(1)
	}
}

// inNamespace runs f on a thread that is in the network namespace ns. Sockets
// that f opens stay there.
func inNamespace(ns int, f func()) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, in whatever namespace it is
		err := unix.Setns(ns, unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}
