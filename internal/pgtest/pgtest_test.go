package pgtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/coordd/coord/internal/pgtest"
	"github.com/coordd/coord/internal/tempserver"
)

// envChild makes the test program start a server, print its process id, and
// wait to be killed.
const envChild = "COORD_PGTEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envChild); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

func child(dir string) int {
	s, err := pgtest.Start(context.Background(), pgtest.Options{Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.Pid())
	<-s.Done()
	return 1
}

func TestServerAnswersQueriesAndLeavesNothing(t *testing.T) {
	parent := openTempDir(t)
	s := pgtest.Get(t, pgtest.Options{Dir: parent, Settings: map[string]string{"application_name": "set by the test"}})

	conn, err := pgx.Connect(t.Context(), s.DSN(""))
	if err != nil {
		t.Fatal(err)
	}
	var setting string
	if err := conn.QueryRow(t.Context(), "SHOW listen_addresses").Scan(&setting); err != nil || setting != "" {
		t.Errorf("listen_addresses = %q, %v: the server must not listen on the network", setting, err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}

	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	select {
	case <-s.Done():
	default:
		t.Error("closed, and the server still runs")
	}
	wantEmpty(t, parent)
}

func TestFailedStartLeavesNothing(t *testing.T) {
	parent := openTempDir(t)
	_, err := pgtest.Start(t.Context(), pgtest.Options{Dir: parent, Settings: map[string]string{"no_such_setting": "1"}})
	if errors.Is(err, pgtest.ErrNotInstalled) {
		pgtest.Get(t, pgtest.Options{}) // skips, or fails, with the reason
	}
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Fatalf("want an error that quotes the server's, have %v", err)
	}
	wantEmpty(t, parent)
}

func TestStartStopsWhenContextEnds(t *testing.T) {
	parent := openTempDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pgtest.Start(ctx, pgtest.Options{Dir: parent}); err == nil {
		t.Fatal("started under a context that has ended")
	}
	wantEmpty(t, parent)
}

func TestPathTooLongForASocketIsRefused(t *testing.T) {
	parent := filepath.Join(openTempDir(t), strings.Repeat("d", 120))
	if err := os.Mkdir(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := pgtest.Start(t.Context(), pgtest.Options{Dir: parent})
	if errors.Is(err, pgtest.ErrNotInstalled) {
		pgtest.Get(t, pgtest.Options{})
	}
	if err == nil || !strings.Contains(err.Error(), "too long") {
		t.Fatalf("have %v", err)
	}
	wantEmpty(t, parent)
}

// TestServerEndsWithItsParent kills a process that runs a server and expects
// the server to be gone.
func TestServerEndsWithItsParent(t *testing.T) {
	if testing.Short() {
		t.Skip("starts one more server")
	}
	pgtest.Get(t, pgtest.Options{}) // skips where there is none
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envChild+"="+openTempDir(t))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, readErr := bufio.NewReader(out).ReadString('\n')
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed", as intended
	if readErr != nil {
		t.Fatal(readErr)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	waitGone(t, pid)
}

func waitGone(t *testing.T, pid int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for tempserver.Running(pid) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d still runs", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// openTempDir is t.TempDir with a short path.
func openTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "coord-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 0 {
		t.Errorf("%d entries left in %s, the first is %s", len(entries), dir, entries[0].Name())
	}
}
