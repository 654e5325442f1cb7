package cluster

import (
	"sync"

	"github.com/hashicorp/raft"
)

// pipeline keeps the rules of transport for pipelined messages, and takes a
// deadlock out of the library: there, the reader of answers gives up after the
// first one that is no success, and then nobody takes the next answer, for which
// the sender of the next message waits. Such a replicator sends nothing any
// more as long as the leader leads, and raft.Shutdown waits for it for ever. Here
// answers are always taken, and after a bad one sending fails.
type pipeline struct {
	inner raft.AppendPipeline
	t     *transport
	id    raft.ServerID

	out    chan raft.AppendFuture // unbuffered: one answer waits here, the others in the library
	broken chan struct{}          // closed after an answer that ends the pipeline
	done   chan struct{}          // closed by Close
	once   sync.Once
	wg     sync.WaitGroup
}

func newPipeline(t *transport, id raft.ServerID, inner raft.AppendPipeline) *pipeline {
	p := &pipeline{
		inner: inner, t: t, id: id,
		out: make(chan raft.AppendFuture), broken: make(chan struct{}), done: make(chan struct{}),
	}
	p.wg.Go(p.takeAnswers)
	return p
}

// AppendEntries implements raft.AppendPipeline.
func (p *pipeline) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if err := p.t.before(p.id, p.t.prepare(req)); err != nil {
		return nil, err
	}
	select {
	case <-p.broken:
		return nil, raft.ErrPipelineShutdown
	default:
		return p.inner.AppendEntries(req, resp)
	}
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.out }

// Close implements raft.AppendPipeline.
func (p *pipeline) Close() error {
	p.once.Do(func() { close(p.done) })
	err := p.inner.Close()
	p.wg.Wait()
	return err
}

// takeAnswers hands answers on up to the one after which nobody wants more.
func (p *pipeline) takeAnswers() {
	ended := false
	for {
		select {
		case f := <-p.inner.Consumer():
			if ended {
				continue
			}
			select {
			case p.out <- f:
			case <-p.done:
				return
			}
			if resp := f.Response(); !resp.Success || resp.Term > f.Request().Term {
				ended = true
				close(p.broken)
			}
		case <-p.done:
			return
		}
	}
}
