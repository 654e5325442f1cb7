package mariadbtest_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/coordd/coord/internal/mariadbtest"
	"github.com/coordd/coord/internal/tempserver"
)

// envChild makes the test program start a server, print its process id, and
// wait to be killed.
const envChild = "COORD_MARIADBTEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envChild); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

func child(dir string) int {
	s, err := mariadbtest.Start(context.Background(), mariadbtest.Options{Dir: dir})
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
	s := mariadbtest.Get(t, mariadbtest.Options{Dir: parent, Settings: map[string]string{"lock-wait-timeout": "7"}})
	db, err := sql.Open("mysql", s.DSN("", ""))
	if err != nil {
		t.Fatal(err)
	}
	var networking, wait, name string
	if err := db.QueryRowContext(t.Context(), "SELECT @@skip_networking, @@lock_wait_timeout, DATABASE()").Scan(&networking, &wait, &name); err != nil {
		t.Fatal(err)
	}
	if networking != "1" || wait != "7" || name != mariadbtest.Database {
		t.Errorf("skip_networking %s, lock_wait_timeout %s, database %s", networking, wait, name)
	}
	if err := db.Close(); err != nil {
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
	_, err := mariadbtest.Start(t.Context(), mariadbtest.Options{Dir: parent, Settings: map[string]string{"no-such-setting": "1"}})
	skipIfMissing(t, err)
	if err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("want an error that quotes the server's, have %v", err)
	}
	wantEmpty(t, parent)
}

func TestStartStopsWhenContextEnds(t *testing.T) {
	parent := openTempDir(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // somewhere inside
	defer cancel()
	_, err := mariadbtest.Start(ctx, mariadbtest.Options{Dir: parent})
	skipIfMissing(t, err)
	if err == nil {
		t.Error("started under a context that has ended")
	}
	wantEmpty(t, parent)
}

func skipIfMissing(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, mariadbtest.ErrNotInstalled) {
		tempserver.Usable(t, err)
	}
}

// TestServerEndsWithItsParent kills a process that runs a server and expects
// the server to be gone.
func TestServerEndsWithItsParent(t *testing.T) {
	if testing.Short() {
		t.Skip("starts one more server")
	}
	dir := openTempDir(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envChild+"="+dir)
	var problems strings.Builder
	cmd.Stderr = &problems
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
	if strings.Contains(problems.String(), mariadbtest.ErrNotInstalled.Error()) {
		tempserver.Usable(t, mariadbtest.ErrNotInstalled)
	}
	if readErr != nil {
		t.Fatalf("%v: %s", readErr, problems.String())
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for tempserver.Running(pid) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d still runs", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// openTempDir is t.TempDir with a short path that other accounts can enter.
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
