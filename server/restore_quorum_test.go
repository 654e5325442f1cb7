package server

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
)

// loses is a node that applies nothing any more from the command at on.
type loses struct {
	*fakeNode
	at func(c *fsm.Command) bool
}

func (l loses) Propose(c *fsm.Command, w cluster.Waiter) {
	if l.at(c) {
		l.hold()
	}
	l.fakeNode.Propose(c, w)
}

// Whenever a restore gets no answer any more, it ends with what is known of it, and
// once there are answers again, nothing but its commit takes effect.
func TestRestoreThatIsNotAnsweredEndsAndSaysWhatIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		at       func(c *fsm.Command) bool
		want     error
		code     coordpb.Code
		restored bool // in the end
	}{
		"its beginning": {func(c *fsm.Command) bool { return c.Begin != nil }, errStandstill, coordpb.Code_CODE_UNAVAILABLE, false},
		"a part":        {func(c *fsm.Command) bool { return c.Chunk != nil && c.Chunk.Offset > 0 }, errStandstill, coordpb.Code_CODE_UNAVAILABLE, false},
		"its commit":    {func(c *fsm.Command) bool { return c.Commit != nil && !c.Commit.Abandon }, errCommitUnknown, coordpb.Code_CODE_UNKNOWN_OUTCOME, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, n := fakeServer(t)
				data := make([]byte, 5*restoreChunk) // no backup, but nobody looks before the commit
				_, _ = rand.Read(data)
				if c.restored {
					var b bytes.Buffer
					if err := n.m.Snapshot().ForBackup().Encode(&b); err != nil {
						t.Fatal(err)
					}
					data = b.Bytes()
				}
				s.node = loses{n, c.at}
				r := &restoring{s: s, ctx: t.Context(), slots: make(chan struct{}, restoreWindow), failed: make(chan error, 1)}
				queue := []*coordpb.RestoreRequest{{Begin: announce("x", data)}, {Data: data}}
				begin := time.Now()
				_, err := r.run(func() (*coordpb.RestoreRequest, error) {
					if len(queue) == 0 {
						return nil, io.EOF
					}
					m := queue[0]
					queue = queue[1:]
					return m, nil
				})
				if !errors.Is(err, c.want) || coordpb.Code(codeOf(err)) != c.code {
					t.Errorf("it ends with %v, code %v", err, codeOf(err))
				}
				if took := time.Since(begin); took > restorePatience+settleMost {
					t.Errorf("after %v", took)
				}
				n.release()
				var last fsm.Restored
				s.machine.View(func(v *fsm.View) { last = v.LastRestore })
				if (last.ID == "x") != c.restored {
					t.Errorf("afterwards the last restore is %+v", last)
				}
			})
		})
	}
}
