package boltfence_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/boltfence"
)

func open(t testing.TB, path string, opts ...boltfence.Option) *boltfence.Store {
	t.Helper()
	s, err := boltfence.Open(path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestMarksSurviveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marks.db")
	s := open(t, path)
	for _, token := range []fence.Token{33, 33, 34} {
		if err := s.Admit(t.Context(), "report", token); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	var stale *fence.StaleError
	if err := s.Admit(t.Context(), "report", 33); !errors.As(err, &stale) || *stale != (fence.StaleError{Resource: "report", Got: 33, Seen: 34}) {
		t.Errorf("%v", err)
	}
	if err := s.Admit(t.Context(), "report", 34); err != nil {
		t.Errorf("the holder itself: %v", err)
	}
	if err := s.Admit(t.Context(), "other", 1); err != nil {
		t.Errorf("another resource: %v", err)
	}
}

func TestEachLockHasItsMark(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "marks.db"))
	a, b := s.ForLock("/locks/a"), s.ForLock("/locks/b")
	if err := errors.Join(a.Admit(t.Context(), "r", 50), b.Admit(t.Context(), "r", 40), s.Admit(t.Context(), "r", 1)); err != nil {
		t.Fatal(err)
	}
	var stale *fence.StaleError
	if err := a.Admit(t.Context(), "r", 45); !errors.As(err, &stale) || stale.Lock != "/locks/a" {
		t.Errorf("%v", err)
	}
	// No two pairs of names are one mark.
	if err := s.ForLock("x").Admit(t.Context(), "rr", 9); err != nil {
		t.Fatal(err)
	}
	if err := s.ForLock("rx").Admit(t.Context(), "r", 1); err != nil {
		t.Errorf("%v", err)
	}
}

func TestStrictAdmitsATokenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marks.db")
	s := open(t, path, boltfence.Strict())
	if err := s.Admit(t.Context(), "r", 7); err != nil {
		t.Fatal(err)
	}
	if err := s.Admit(t.Context(), "r", 7); !errors.Is(err, fence.ErrStale) {
		t.Errorf("again: %v", err)
	}
	if err := s.Admit(t.Context(), "r", 8); err != nil {
		t.Errorf("the next: %v", err)
	}
}

// A token that is the mark already costs no write.
func TestSameTokenIsNoWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marks.db")
	s := open(t, path)
	if err := s.Admit(t.Context(), "r", 7); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := s.Admit(t.Context(), "r", 7); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file has changed (%v)", err)
	}
}

func TestBadInputIsRefusedAndChangesNothing(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "marks.db"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name     string
		ctx      context.Context
		store    fence.Store
		resource string
		token    fence.Token
		want     error
	}{
		{"no token", t.Context(), s, "r", 0, fence.ErrInvalidToken},
		{"too large", t.Context(), s, "r", fence.MaxToken + 1, fence.ErrInvalidToken},
		{"no resource", t.Context(), s, "", 1, fence.ErrInvalidResource},
		{"zero byte in the lock", t.Context(), s.ForLock("a\x00b"), "r", 1, fence.ErrInvalidResource},
		{"ended context", ended, s, "r", 9, context.Canceled},
	} {
		if err := c.store.Admit(c.ctx, c.resource, c.token); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := s.Admit(t.Context(), "r", 1); err != nil {
		t.Errorf("something was raised: %v", err)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "marks.db")
	s := open(t, path)
	if _, err := boltfence.Open(path, boltfence.Wait(10*time.Millisecond)); !errors.Is(err, boltfence.ErrInUse) {
		t.Errorf("%v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Admit(t.Context(), "r", 1); err == nil {
		t.Error("a closed store admits")
	}
	open(t, path)
}

func TestDamageIsNamed(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := boltfence.Open(text); !errors.Is(err, boltfence.ErrDamaged) {
		t.Errorf("another file: %v", err)
	}
	short := filepath.Join(dir, "short.db")
	db, err := bbolt.Open(short, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte("coord_fence"))
		if err != nil {
			return err
		}
		return b.Put([]byte("r\x00"), []byte("7"))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if err := open(t, short).Admit(t.Context(), "r", 9); !errors.Is(err, boltfence.ErrDamaged) {
		t.Errorf("a short mark: %v", err)
	}
}

func TestConcurrentTokensNeverGoDown(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "marks.db"))
	var mu sync.Mutex
	var admitted []fence.Token
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 25 {
				token := fence.Token(1 + 8*i + w)
				switch err := s.Admit(context.Background(), "r", token); {
				case err == nil:
					mu.Lock()
					admitted = append(admitted, token)
					mu.Unlock()
				case !errors.Is(err, fence.ErrStale):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	top := fence.Token(0)
	for _, token := range admitted {
		top = max(top, token)
	}
	if top != 8*25 {
		t.Errorf("the newest token %s was not admitted: %v", fence.Token(200), top)
	}
	if err := s.Admit(t.Context(), "r", top-1); !errors.Is(err, fence.ErrStale) {
		t.Errorf("%v", err)
	}
}

// What Admit has said to be admitted is still known after kill -9.
func TestMarksSurviveKill(t *testing.T) {
	const env = "BOLTFENCE_TEST_FILE"
	if path := os.Getenv(env); path != "" {
		raise(path)
		return
	}
	path := filepath.Join(t.TempDir(), "marks.db")
	last := 0
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMarksSurviveKill$")
		cmd.Env = append(os.Environ(), env+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 20 && lines.Scan(); n++ {
			if last, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatalf("%q: %v", lines.Text(), err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it had said before it died counts, too
			if n, err := strconv.Atoi(lines.Text()); err == nil {
				last = n
			}
		}
		_ = cmd.Wait()
	}
	if last < 60 {
		t.Fatalf("the process got only to %d", last)
	}
	s := open(t, path)
	if err := s.Admit(t.Context(), "r", fence.Token(last-1)); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the mark %d is lost: %v", last, err)
	}
}

// raise admits one token after the other, and says so each time, until it is
// killed.
func raise(path string) {
	s, err := boltfence.Open(path, boltfence.Wait(5*time.Second))
	if err != nil {
		panic(err)
	}
	token := fence.Token(1)
	var stale *fence.StaleError
	if err := s.Admit(context.Background(), "r", token); errors.As(err, &stale) {
		token = stale.Seen
	}
	for {
		token++
		if err := s.Admit(context.Background(), "r", token); err != nil {
			panic(err)
		}
		fmt.Println(token)
	}
}

func ExampleStore() {
	dir, err := os.MkdirTemp("", "marks")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	marks, err := boltfence.Open(filepath.Join(dir, "marks.db"))
	if err != nil {
		panic(err)
	}
	defer marks.Close()
	for _, token := range []fence.Token{33, 34, 33} {
		fmt.Println(token, marks.Admit(context.Background(), "report", token))
	}
	// Output:
	// 33 <nil>
	// 34 <nil>
	// 33 fence: stale token for "report": 33 < 34, a newer holder has been here
}
