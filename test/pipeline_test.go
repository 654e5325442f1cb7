package test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/coordd/coord/api/coordpb"
)

// TestPipelinesOfReadsAndWritesKeepTheirOrder sends `get set get` 64 times without
// waiting for an answer, through a follower, while the leader packs the sets into
// common log entries. A get names the write that it follows: it must show that
// write, and what the answers show must never go back. (That a get does not show
// a later set of its pipeline is promised on the ZooKeeper port only.)
func TestPipelinesOfReadsAndWritesKeepTheirOrder(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	for _, mode := range []coordpb.ReadMode{coordpb.ReadMode_READ_MODE_SESSION, coordpb.ReadMode_READ_MODE_LINEARIZABLE} {
		t.Run(mode.String(), func(t *testing.T) {
			r := greet(t, connect(t, c.follower().grpc(), insecure.NewCredentials()), rawHello())
			path := fmt.Sprintf("/pipeline-%d", mode)
			if e := r.write(&coordpb.Op{Kind: coordpb.Op_KIND_CREATE, Path: path}).GetError(); e != nil {
				t.Fatal(e)
			}
			created := r.seq
			for range 20 {
				p := &pipeline{session: r, path: path, mode: mode, created: created}
				p.send(64)
				p.check()
			}
		})
	}
}

// pipeline is one burst of requests and what is known of its answers.
type pipeline struct {
	session  *rawSession
	path     string
	mode     coordpb.ReadMode
	created  uint64            // the number of the create: the k-th set after it makes version k
	follows  map[uint64]uint64 // by a read's id: the write it names
	unsolved int
}

func (p *pipeline) send(depth int) {
	p.follows = map[uint64]uint64{}
	var requests []*coordpb.Request
	read := func() {
		id := uint64(len(p.follows) + 1)
		p.follows[id] = p.session.seq
		requests = append(requests, &coordpb.Request{Id: id, Read: &coordpb.Read{
			Kind: coordpb.Read_KIND_GET, Path: p.path, Mode: p.mode, AfterSeq: p.session.seq,
		}})
	}
	for range depth {
		read()
		p.session.seq++
		set := &coordpb.Op{Kind: coordpb.Op_KIND_SET, Path: p.path, Version: -1}
		requests = append(requests, &coordpb.Request{Seq: p.session.seq, Write: &coordpb.Write{Ops: []*coordpb.Op{set}}})
		read()
	}
	p.unsolved = len(requests)
	answered := p.session.seq - uint64(depth) // of the bursts before
	p.session.send(&coordpb.SessionRequest{Requests: requests, Ack: answered})
}

// check reads the answers in the order in which they come.
func (p *pipeline) check() {
	t := p.session.t
	t.Helper()
	var newest int64
	for p.unsolved > 0 {
		m := p.session.receive()
		if e := m.GetGoodbye().GetError(); e != nil {
			t.Fatalf("the stream ends: %v", e)
		}
		for _, reply := range m.GetReplies() {
			p.unsolved--
			if e := reply.GetError(); e != nil {
				t.Fatalf("request %d/%d: %v", reply.GetSeq(), reply.GetId(), e)
			}
			version, least := p.shown(reply)
			if version < least {
				t.Fatalf("read %d shows version %d, but it follows the write of version %d", reply.GetId(), version, least)
			}
			if version < newest {
				t.Fatalf("an answer shows version %d after one that showed %d", version, newest)
			}
			newest = version
		}
	}
}

// shown is the version that an answer shows, and the least that it must show.
func (p *pipeline) shown(reply *coordpb.Reply) (version, least int64) {
	if reply.GetSeq() != 0 {
		want := int64(reply.GetSeq() - p.created)
		if got := reply.GetResults()[0].GetStat().GetVersion(); got != want {
			p.session.t.Fatalf("write %d made version %d, want %d", reply.GetSeq(), got, want)
		}
		return want, want
	}
	return reply.GetRead().GetStat().GetVersion(), int64(p.follows[reply.GetId()] - p.created)
}
