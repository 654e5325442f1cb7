package znode

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// FuzzDecode feeds the decoder with contents under a right checksum, and with
// the raw bytes. What it takes must be a sound tree, and must come out of its
// own image again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte(imageMagic + "\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if tree, err := Decode(bytes.NewReader(b)); err == nil {
			sound(t, tree)
		} else if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("error is %v", err)
		}
		tree, err := Decode(bytes.NewReader(seal(b)))
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error is %v", err)
			}
			return
		}
		sound(t, tree)
	})
}

func sound(t *testing.T, tree *Tree) {
	t.Helper()
	if err := tree.Check(); err != nil {
		t.Fatal(err)
	}
	again, err := Decode(bytes.NewReader(encode(t, tree)))
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != tree.Digest() || !bytes.Equal(encode(t, again), encode(t, tree)) {
		t.Fatal("decode and encode are not inverse")
	}
}

// FuzzNodes builds images record by record, so that the fuzzer gets behind the
// digest, which it could not guess: the image ends with the digest that the
// decoder itself finds.
func FuzzNodes(f *testing.F) {
	payload := bytes.TrimPrefix(unseal(encode(f, New())), []byte(imageMagic+"\x01"))
	f.Add(payload[:len(payload)-10])
	f.Fuzz(func(t *testing.T, records []byte) {
		d := decoder{chunkReader: newChunkReader(bytes.NewReader(seal(append(bytes.Clone(records), 0)))), t: newTree()}
		d.nodes()
		if d.err != nil || d.assemble() != nil {
			return
		}
		sound(t, d.t)
	})
}

// unseal returns what is in the chunks of an image.
func unseal(image []byte) (payload []byte) {
	c := newChunkReader(bytes.NewReader(image))
	for c.more() {
		payload = append(payload, c.buf...)
	}
	return payload
}

// FuzzPath compares ValidatePath with the rule as ZooKeeper words it, over
// UTF-16, and sees that a tree takes exactly the valid paths.
func FuzzPath(f *testing.F) {
	for _, p := range []string{"/", "/a", "/a/b", "//", "/a/", "/.", "/a/..", "/\x00", "/\u009f", "/\ue000", "/\U0001f600", "/\xff", "a", "/a//b", "/..."} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		err := ValidatePath(p)
		if (err == nil) != slowValid(p) {
			t.Fatalf("%q: %v", p, err)
		}
		if err != nil && !errors.Is(err, ErrBadPath) {
			t.Fatalf("%q: %v", p, err)
		}
		r := newTester(t)
		r.caller.Trusted = true
		for end := range len(p) {
			if end > 0 && p[end] == '/' {
				_, _ = r.apply(Op{Kind: OpCreate, Path: p[:end]})
			}
		}
		_, created := r.apply(Op{Kind: OpCreate, Path: p})
		if _, there := r.tree.Exists(p); there != (err == nil) {
			t.Fatalf("%q: %v, but there: %v (create: %v)", p, err, there, created)
		}
		if _, err := r.apply(Op{Kind: OpDelete, Path: p, Version: AnyVersion}); err == nil && created != nil {
			t.Fatalf("%q: deleted, but not created: %v", p, created)
		}
		r.check()
	})
}

func slowValid(p string) bool {
	if p == "/" {
		return true
	}
	if !utf8.ValidString(p) || !strings.HasPrefix(p, "/") {
		return false
	}
	for _, name := range strings.Split(p, "/")[1:] {
		if name == "" || name == "." || name == ".." || len(name) > maxNameBytes {
			return false
		}
	}
	for _, c := range utf16.Encode([]rune(p)) {
		if c <= 0x1f || c >= 0x7f && c <= 0x9f || c >= 0xd800 && c <= 0xf8ff || c >= 0xfff0 {
			return false
		}
	}
	return true
}
