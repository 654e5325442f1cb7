package znode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cespare/xxhash/v2"
)

// sample has nodes of every kind, several ACL lists, null and large data, a
// hole among the numbers, and a quota.
func sample(t *testing.T) *tester {
	t.Helper()
	r := newTester(t)
	r.caller = Caller{Session: 7, Identities: []Identity{{Scheme: "digest", ID: "a:b"}}}
	r.create("/hole")
	r.create("/zookeeper/quota/a")
	r.must(Op{Kind: OpCreate, Path: "/zookeeper/quota/a/zookeeper_limits", Data: []byte("=;countHardLimit=50")})
	r.must(Op{Kind: OpCreate, Path: "/zookeeper/quota/a/zookeeper_stats"})
	r.must(Op{Kind: OpCreate, Path: "/a", Data: bytes.Repeat([]byte("large "), 30_000)})
	r.must(Op{Kind: OpCreate, Path: "/a/null"})
	r.must(Op{Kind: OpCreate, Path: "/a/mine", ACL: []ACL{{PermAll, "auth", ""}}})
	r.must(Op{Kind: OpCreate, Path: "/a/e", Node: Ephemeral, Sequential: true})
	r.must(Op{Kind: OpCreate, Path: "/a/c", Node: Container, ACL: []ACL{{PermAll, "ip", "10.0.0.0/8"}, {PermAll, "world", "anyone"}}})
	r.must(Op{Kind: OpCreate, Path: "/a/t", Node: TTL, TTL: time.Minute})
	r.must(Op{Kind: OpSet, Path: "/a/t", Data: []byte("x"), Version: 0})
	r.must(Op{Kind: OpDelete, Path: "/hole", Version: 0})
	r.check()
	return r
}

func TestImageRestoresTheSameTree(t *testing.T) {
	r := sample(t)
	tree := r.restored()
	all := &Caller{Trusted: true}
	want, _, _ := r.tree.Walk("/", all, "", 1000)
	got, _, _ := tree.Walk("/", all, "", 1000)
	if fmt.Sprint(want) != fmt.Sprint(got) || tree.Counts() != r.tree.Counts() {
		t.Errorf("restored\n%v\nwant\n%v", got, want)
	}
	if !bytes.Equal(encode(t, tree), encode(t, r.tree)) {
		t.Error("the image of the restored tree has other bytes")
	}
	r.tree = tree
	r.must(Op{Kind: OpCreate, Path: "/a/more"})
	if got := r.data("/zookeeper/quota/a/zookeeper_stats"); !strings.HasPrefix(got, "count=7,") {
		t.Errorf("the quota of the restored tree shows %s", got)
	}
}

// TestImageIsNotTouchedByLaterWrites writes all over the tree while the image
// is being written; with -race it also shows that no memory is shared.
func TestImageIsNotTouchedByLaterWrites(t *testing.T) {
	r := newTester(t)
	const n = 3000
	for k := range n {
		r.must(Op{Kind: OpCreate, Path: fmt.Sprintf("/n%d", k), Data: fmt.Appendf(nil, "data %d", k)})
	}
	want, digest := encode(t, r.tree), r.tree.Digest()
	half := make(chan struct{}) // closed when half of the writes are done
	images := make(chan *Image)
	results := make(chan []byte)
	go func() {
		for m := range images {
			var b bytes.Buffer
			if err := m.Encode(&gatedWriter{&b, half}); err != nil {
				t.Error(err)
			}
			results <- b.Bytes()
		}
	}()
	image := r.tree.Snapshot()
	images <- image
	for k := range n {
		p := fmt.Sprintf("/n%d", k)
		switch k % 4 {
		case 0:
			r.must(Op{Kind: OpDelete, Path: p, Version: AnyVersion})
		case 1:
			r.must(Op{Kind: OpSet, Path: p, Version: AnyVersion, Data: []byte("other")})
		case 2:
			r.must(Op{Kind: OpCreate, Path: p + "/child", ACL: []ACL{{PermAll, "world", "anyone"}, {PermAll, "ip", fmt.Sprintf("10.0.0.%d", k%256)}}})
		case 3:
			r.must(Op{Kind: OpSetACL, Path: p, Version: AnyVersion, ACL: []ACL{{PermAll, "digest", fmt.Sprintf("a:%d", k)}}})
		}
		if k%1000 == 0 {
			r.tree.Snapshot()
		}
		if k == n/2 {
			close(half)
		}
	}
	if !bytes.Equal(<-results, want) {
		t.Error("writes after the snapshot are in its image")
	}
	images <- image // once more, long after
	if !bytes.Equal(<-results, want) || image.Digest() != digest || image.Len() != n+4 {
		t.Error("the image has changed")
	}
	close(images)
	r.check()
	r.restored()
}

// gatedWriter lets nothing through before its gate is open.
type gatedWriter struct {
	w    io.Writer
	gate <-chan struct{}
}

func (g *gatedWriter) Write(b []byte) (int, error) {
	<-g.gate
	return g.w.Write(b)
}

func TestDecodeTakesNoMoreThanTheImage(t *testing.T) {
	r := sample(t)
	b := append(encode(t, r.tree), "what follows"...)
	in := bytes.NewReader(b)
	if _, err := Decode(iotest.OneByteReader(in)); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(in); string(rest) != "what follows" {
		t.Errorf("left in the stream: %q", rest)
	}
}

func TestDamagedImageIsRefused(t *testing.T) {
	b := encode(t, sample(t).tree)
	for i := 0; i < len(b); i += 1 + i/50 {
		if _, err := Decode(bytes.NewReader(b[:i])); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut at %d: %v", i, err)
		}
		c := bytes.Clone(b)
		c[i] ^= 0x10
		if _, err := Decode(bytes.NewReader(c)); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit changed at %d: %v", i, err)
		}
	}
	disk := errors.New("disk")
	if _, err := Decode(io.MultiReader(bytes.NewReader(b[:100]), iotest.ErrReader(disk))); !errors.Is(err, disk) || errors.Is(err, ErrCorrupt) {
		t.Errorf("a failing reader: %v", err)
	}
}

func TestFailingWriterIsReported(t *testing.T) {
	r := sample(t)
	size := len(encode(t, r.tree))
	for _, after := range []int{0, 10, size - 1} {
		if err := r.tree.Snapshot().Encode(&fullDisk{after}); !errors.Is(err, errDisk) {
			t.Errorf("disk full after %d of %d bytes: %v", after, size, err)
		}
	}
}

var errDisk = errors.New("no space left")

type fullDisk struct{ left int }

func (f *fullDisk) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errDisk
	}
	return len(b), nil
}

// reseal writes the image's payload again after a change, with a right
// checksum: so that what the decoder thinks of the contents is tested.
func reseal(t *testing.T, image []byte, change func(payload []byte) []byte) []byte {
	t.Helper()
	var payload []byte
	for {
		n := int(binary.LittleEndian.Uint32(image))
		if n == 0 {
			break
		}
		payload = append(payload, image[4:4+n]...)
		image = image[4+n:]
	}
	return seal(change(payload))
}

func seal(payload []byte) []byte {
	var out []byte
	sum := xxhash.Sum64(payload)
	for len(payload) > 0 {
		n := min(len(payload), maxChunk)
		out = binary.LittleEndian.AppendUint32(out, uint32(n))
		out = append(out, payload[:n]...)
		payload = payload[n:]
	}
	out = append(out, 0, 0, 0, 0)
	return binary.LittleEndian.AppendUint64(out, sum)
}

func TestImageOfAnotherFormatSaysSo(t *testing.T) {
	b := reseal(t, encode(t, New()), func(p []byte) []byte {
		p[len(imageMagic)] = 77
		return p
	})
	if _, err := Decode(bytes.NewReader(b)); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "format 77") {
		t.Errorf("error is %v", err)
	}
}

func TestSparseTreeIsRestoredDense(t *testing.T) {
	r := newTester(t)
	const keep, all = 100, 200 * pageSize
	for k := range all {
		r.must(Op{Kind: OpCreate, Path: fmt.Sprintf("/n%06d", k)})
	}
	r.must(Op{Kind: OpCreate, Path: fmt.Sprintf("/n%06d/child", all-1)})
	for k := range all - 1 {
		if k%(all/keep) != 1 {
			r.must(Op{Kind: OpDelete, Path: fmt.Sprintf("/n%06d", k), Version: 0})
		}
	}
	tree := r.restored()
	used := 0
	for _, p := range tree.nodes.pages {
		if p != nil {
			used++
		}
	}
	if used > sparePages+10 {
		t.Errorf("%d nodes on %d pages", tree.Counts().Nodes, used)
	}
	r.tree = tree
	r.create("/more")
	r.check()
	r.restored()
}
