package fsm

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/coordd/coord/znode"
)

// BenchmarkApplyEntry applies entries of 512 sets of 100 bytes, from 64
// sessions over 10,000 znodes; the figures are per set.
func BenchmarkApplyEntry(b *testing.B) {
	const sets, sessions, nodes = 512, 64, 10_000
	m, clients := benchMachine(b, sessions, nodes)
	data := make([]byte, 100)
	var entry, cmd []byte
	b.ReportAllocs()
	b.ResetTimer()
	for n, index := 0, m.Index()+1; n < b.N; n, index = n+sets, index+1 {
		b.StopTimer()
		entry = NewBatch(entry[:0], startClock)
		for i := range sets {
			c := clients[i%sessions]
			w := c.write(znode.Op{Kind: znode.OpSet, Path: fmt.Sprintf("/bench/node-%06d", (n+i*7)%nodes), Data: data, Version: znode.AnyVersion})
			w.Ack = c.seq - min(c.seq, 64)
			cmd = AppendCommand(cmd[:0], w)
			entry = AppendToBatch(entry, cmd)
		}
		b.StartTimer()
		if err := m.ApplyEntry(index, 1, entry); err != nil {
			b.Fatal(err)
		}
	}
}

func benchMachine(b *testing.B, sessions, nodes int) (*Machine, []*client) {
	b.Helper()
	r := newRig(b)
	var clients []*client
	for i := range sessions {
		clients = append(clients, r.open(i+1))
	}
	r.done(clients[0].write(create("/bench")))
	for i := range nodes {
		w := clients[0].write(create(fmt.Sprintf("/bench/node-%06d", i)))
		w.Ack = w.Seq - 1
		r.done(w)
		if i%1000 == 0 {
			r.hook.reset()
		}
	}
	r.m.SetHook(noHook{})
	return r.m, clients
}

func BenchmarkDecodeCommand(b *testing.B) {
	c := &Command{
		Kind: CmdWrite, Line: LineRef{Session: 0x700000001, Generation: 1}, Seq: 1000, Ack: 990,
		Write: &Write{Ops: []znode.Op{{Kind: znode.OpSet, Path: "/bench/node-000001", Data: make([]byte, 100), Version: znode.AnyVersion}}},
	}
	cmd := AppendCommand(nil, c)
	var d decoder
	b.ReportAllocs()
	for b.Loop() {
		if err := d.decode(cmd); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	c := &Command{
		Kind: CmdWrite, Line: LineRef{Session: 0x700000001, Generation: 1}, Seq: 1000, Ack: 990,
		Write: &Write{Ops: []znode.Op{{Kind: znode.OpSet, Path: "/bench/node-000001", Data: make([]byte, 100), Version: znode.AnyVersion}}},
	}
	cmd := AppendCommand(nil, c)
	b.ReportAllocs()
	for b.Loop() {
		if err := Validate(cmd); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendCommand(b *testing.B) {
	c := &Command{
		Kind: CmdWrite, Line: LineRef{Session: 0x700000001, Generation: 1}, Seq: 1000, Ack: 990,
		Write: &Write{Ops: []znode.Op{{Kind: znode.OpSet, Path: "/bench/node-000001", Data: make([]byte, 100), Version: znode.AnyVersion}}},
	}
	var cmd []byte
	b.ReportAllocs()
	for b.Loop() {
		cmd = AppendCommand(cmd[:0], c)
	}
}

func BenchmarkSnapshot(b *testing.B) {
	m, _ := benchMachine(b, 100, 100_000)
	b.Run("call", func(b *testing.B) {
		for b.Loop() {
			m.Snapshot()
		}
	})
	image := m.Snapshot()
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			if err := image.Encode(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	var buf bytes.Buffer
	if err := image.Encode(&buf); err != nil {
		b.Fatal(err)
	}
	b.Run("restore", func(b *testing.B) {
		b.SetBytes(int64(buf.Len()))
		for b.Loop() {
			if err := New(Options{}).Restore(bytes.NewReader(buf.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
}
