package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/term"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coordd/coord/api/coordpb"
)

const ctrlC = 3

// serveKeys lets a person on a terminal kill, start and pause servers. It
// returns nil when ctx ends or the user quits. Without a terminal it only
// waits.
func (d *devCluster) serveKeys(ctx context.Context, out console) error {
	in := int(os.Stdin.Fd())
	if len(d.nodes) < 2 || !term.IsTerminal(in) || !isTerminal(out.Writer) {
		<-ctx.Done()
		return nil
	}
	state, err := term.MakeRaw(in)
	if err != nil {
		<-ctx.Done()
		return nil
	}
	out.raw.Store(true)
	defer func() {
		_ = term.Restore(in, state)
		out.raw.Store(false)
	}()
	fmt.Fprintf(out, "keys: 1-%d kill or start that server   p pause or continue the leader   l move the leader   s show   q quit\n", len(d.nodes))
	keys := readKeys()
	for {
		select {
		case <-ctx.Done():
			return nil
		case key, ok := <-keys:
			if !ok {
				<-ctx.Done()
				return nil
			}
			if err := d.press(ctx, key, out); errors.Is(err, errQuit) {
				return nil
			} else if err != nil {
				fmt.Fprintf(out, "%v\n", err)
			}
		}
	}
}

// readKeys reads the terminal for the rest of the process: a blocked read
// cannot be called off. The channel is closed when there is no more input.
func readKeys() <-chan byte {
	keys := make(chan byte)
	go func() {
		defer close(keys)
		var b [1]byte
		for {
			if _, err := os.Stdin.Read(b[:]); err != nil {
				return
			}
			keys <- b[0]
		}
	}()
	return keys
}

func (d *devCluster) press(ctx context.Context, key byte, out io.Writer) error {
	switch {
	case key == 'q' || key == ctrlC:
		return errQuit
	case key == 'p':
		return d.pauseOrContinue(out)
	case key == 'l':
		return d.moveLeader(ctx, out)
	case key == 's':
		d.printTable(out)
		return nil
	case key >= '1' && int(key-'1') < len(d.nodes):
		return d.killOrStart(d.nodes[key-'1'], out)
	}
	return nil
}

func (d *devCluster) killOrStart(n *devNode, out io.Writer) error {
	if n.pid() == 0 {
		fmt.Fprintf(out, "%s is started\n", n.name)
		return n.start(d.exited)
	}
	fmt.Fprintf(out, "%s is killed (SIGKILL)\n", n.name)
	n.signal(syscall.SIGKILL, true)
	return nil
}

func (d *devCluster) pauseOrContinue(out io.Writer) error {
	for _, n := range d.nodes {
		if n.isPaused() {
			n.signal(syscall.SIGCONT, false)
			fmt.Fprintf(out, "%s goes on (SIGCONT)\n", n.name)
			return nil
		}
	}
	n := d.leader()
	if n == nil {
		return errors.New("no server leads now")
	}
	n.signal(syscall.SIGSTOP, false)
	fmt.Fprintf(out, "%s, the leader, is paused (SIGSTOP); p lets it go on\n", n.name)
	return nil
}

func (d *devCluster) moveLeader(ctx context.Context, out io.Writer) error {
	n := d.leader()
	if n == nil {
		return errors.New("no server leads now")
	}
	conn, err := grpc.NewClient(n.grpc(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	reply, err := coordpb.NewAdminClient(conn).MoveLeader(ctx, &coordpb.MoveLeaderRequest{})
	if err != nil {
		return err
	}
	if reply.Error != nil {
		return errors.New(reply.Error.Message)
	}
	fmt.Fprintf(out, "the leader is now %s\n", reply.Leader)
	return nil
}

// console is an output that ends lines as the terminal needs it: in raw mode
// a line feed alone does not return to the first column.
type console struct {
	io.Writer
	raw *atomic.Bool
}

func (c console) Write(p []byte) (int, error) {
	if !c.raw.Load() {
		return c.Writer.Write(p)
	}
	if _, err := c.Writer.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(p), nil
}
