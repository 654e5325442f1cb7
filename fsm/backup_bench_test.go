package fsm

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coord/znode"
)

// BenchmarkRestoreOfAMillion restores a million znodes of 100 bytes. What readers
// and writers wait for is the commit; the tree is built beside the present one.
func BenchmarkRestoreOfAMillion(b *testing.B) {
	r := newRig(b)
	data := bytes.Repeat([]byte("x"), 100)
	for top := range 1000 {
		ops := []znode.Op{create(fmt.Sprintf("/%d", top))}
		for i := range 1000 {
			op := create(fmt.Sprintf("/%d/%d", top, i))
			op.Data = data
			ops = append(ops, op)
		}
		r.done(r.onServer(&Command{Kind: CmdWrite, Write: &Write{Multi: true, Ops: ops, Trusted: true}}))
	}
	backup := r.backup()
	var build, commit time.Duration
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprintf("restore-%d", i)
		r.done(r.onServer(beginOf(id, backup)))
		for at := 0; at < len(backup); at += MaxRestoreChunk {
			r.done(r.onServer(chunkOf(id, backup, at, min(at+MaxRestoreChunk, len(backup)))))
		}
		start := time.Now()
		if err := r.m.AwaitRestore(b.Context(), restoreNonce(id)); err != nil {
			b.Fatal(err)
		}
		build += time.Since(start)
		start = time.Now()
		r.done(r.onServer(commitOf(id)))
		commit += time.Since(start)
	}
	b.ReportMetric(float64(build.Milliseconds())/float64(b.N), "build-ms/op")
	b.ReportMetric(float64(commit.Microseconds())/float64(b.N), "commit-us/op")
	b.ReportMetric(float64(len(backup)), "bytes")
}
