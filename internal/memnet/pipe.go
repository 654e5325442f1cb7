package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// room is how many bytes one direction holds, as of the buffers of sockets.
const room = 1 << 20

// pipe is one direction of a connection.
type pipe struct {
	from, to string // hosts

	mu      sync.Mutex // guards below; may be taken under Network.mu
	changed *sync.Cond
	state
	parts []part // written and not read
	size  int    // bytes in parts

	broken       error // both ends get it
	writerClosed bool
	readerClosed bool
	ended        time.Time // when the end of the stream arrives
	readEnd      time.Time // deadlines; zero: none
	writeEnd     time.Time
}

// state is what the network does to a pipe.
type state struct {
	cut                        bool
	writerFrozen, readerFrozen bool
	delay                      time.Duration
}

// part is what one write has put in.
type part struct {
	data []byte
	due  time.Time // when it arrives; zero: it has
}

func newPipe(from, to string) *pipe {
	p := &pipe{from: from, to: to}
	p.changed = sync.NewCond(&p.mu)
	return p
}

func (p *pipe) set(s state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
	p.changed.Broadcast()
}

// wait waits for a change, at most until a moment; zero is none. mu is held.
func (p *pipe) wait(until ...time.Time) {
	for _, t := range until {
		if !t.IsZero() {
			timer := time.AfterFunc(time.Until(t), p.wake)
			defer timer.Stop()
		}
	}
	p.changed.Wait()
}

// wake comes after the waiter has begun to wait, whose lock it takes.
func (p *pipe) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed.Broadcast()
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		var next time.Time // when something arrives
		switch {
		case p.readerClosed:
			return 0, net.ErrClosed
		case p.broken != nil:
			return 0, p.broken
		case passed(p.readEnd):
			return 0, os.ErrDeadlineExceeded
		case p.readerFrozen || p.cut:
		case len(b) == 0:
			return 0, nil
		case len(p.parts) > 0:
			if next = p.parts[0].due; next.IsZero() || passed(next) {
				return p.take(b), nil
			}
		case p.writerClosed && !p.writerFrozen:
			if next = p.ended; next.IsZero() || passed(next) {
				return 0, io.EOF
			}
		}
		p.wait(p.readEnd, next)
	}
}

// endHeard says whether the reader could know that nothing more is coming.
func (p *pipe) endHeard() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writerClosed && !p.cut && !p.readerFrozen && !p.writerFrozen && (p.ended.IsZero() || passed(p.ended))
}

// take moves what has arrived into b. mu is held.
func (p *pipe) take(b []byte) (n int) {
	for n < len(b) && len(p.parts) > 0 {
		first := &p.parts[0]
		if !first.due.IsZero() && !passed(first.due) {
			break
		}
		k := copy(b[n:], first.data)
		n += k
		if first.data = first.data[k:]; len(first.data) == 0 {
			p.parts[0] = part{}
			p.parts = p.parts[1:]
		}
	}
	p.size -= n
	p.changed.Broadcast()
	return n
}

// write puts b in. If nobody reads any more that is an error only for who has heard
// of it; else it is lost in a buffer.
func (p *pipe) write(b []byte, heard bool) (done int, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.writerClosed:
			return done, net.ErrClosed
		case p.broken != nil:
			return done, p.broken
		case passed(p.writeEnd):
			return done, os.ErrDeadlineExceeded
		case p.writerFrozen:
		case p.readerClosed && !p.cut && !p.readerFrozen:
			if heard {
				return done, syscall.EPIPE
			}
			return len(b), nil
		case len(b) == done:
			return done, nil
		case p.size < room:
			done += p.put(b[done:])
			continue
		}
		p.wait(p.writeEnd)
	}
}

// put stores as much of b as there is room for. mu is held.
func (p *pipe) put(b []byte) int {
	n := min(len(b), room-p.size)
	w := part{data: append([]byte(nil), b[:n]...)}
	if p.delay > 0 {
		w.due = time.Now().Add(p.delay)
	}
	if k := len(p.parts); k > 0 && w.due.Before(p.parts[k-1].due) {
		w.due = p.parts[k-1].due // nothing overtakes
	}
	p.parts = append(p.parts, w)
	p.size += n
	p.changed.Broadcast()
	return n
}

// closeReader reports whether it was closed before.
func (p *pipe) closeReader() (was bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, p.readerClosed = p.readerClosed, true
	p.parts, p.size = nil, 0
	p.changed.Broadcast()
	return was
}

func (p *pipe) closeWriter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writerClosed {
		return
	}
	p.writerClosed = true
	if p.delay > 0 {
		p.ended = time.Now().Add(p.delay)
	}
	p.changed.Broadcast()
}

// fail breaks the pipe for both ends.
func (p *pipe) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = err
	p.parts, p.size = nil, 0
	p.changed.Broadcast()
}

// over says that both ends are closed.
func (p *pipe) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readerClosed && p.writerClosed
}

func (p *pipe) setReadDeadline(t time.Time) error {
	return p.setDeadline(&p.readEnd, &p.readerClosed, t)
}

func (p *pipe) setWriteDeadline(t time.Time) error {
	return p.setDeadline(&p.writeEnd, &p.writerClosed, t)
}

func (p *pipe) setDeadline(d *time.Time, closed *bool, t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *closed {
		return net.ErrClosed
	}
	*d = t
	p.changed.Broadcast()
	return nil
}
