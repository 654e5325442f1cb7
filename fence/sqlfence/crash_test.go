package sqlfence_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/coordd/coord/fence/sqlfence"
)

// The environment of a process that is killed in the middle of an operation.
const (
	envVictim = "COORD_SQLFENCE_VICTIM" // the name of the backend
	envDSN    = "COORD_SQLFENCE_DSN"
)

var victimsOperation = sqlfence.Operation{ID: "pay-7", Resource: "r", Token: 34}

// victim applies the operation up to its commit, says so, and waits to be
// killed.
func victim(name string) int {
	for _, b := range backends {
		if b.name != name {
			continue
		}
		db, err := sql.Open(b.driver, os.Getenv(envDSN))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		d := &database{DB: db, backend: b}
		_, err = d.once(context.Background(), victimsOperation, func(tx *sql.Tx) ([]byte, error) {
			_, err := d.pay(34, nil)(tx)
			fmt.Println("before the commit", err)
			select {}
		})
		fmt.Fprintln(os.Stderr, err)
	}
	return 1
}

// TestKilledProcessLeavesTheOperationToTheNext lets a second attempt wait for a
// process that is then killed.
func TestKilledProcessLeavesTheOperationToTheNext(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		dsn := b.create(t)
		db := &database{DB: b.open(t, dsn), backend: b}
		if err := db.migrate(t); err != nil {
			t.Fatal(err)
		}
		exec(t, db, b.createWrites)
		kill := startVictim(t, b, dsn)
		second := make(chan sqlfence.Result, 1)
		go func() {
			op := victimsOperation
			op.Token = 33 // the killed process has raised no mark
			got, err := db.once(context.Background(), op, db.pay(33, []byte("second")))
			if err != nil {
				t.Error(err)
			}
			second <- got
		}()
		db.waitBlocked(t, 1)
		kill()
		wantResult(t, <-second, nil, []byte("second"), 33, false)
		db.wantWrites(t, 1)
	})
}

// startVictim returns when the process stands before its commit.
func startVictim(t *testing.T, b *backend, dsn string) (kill func()) {
	t.Helper()
	cmd := osexec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envVictim+"="+b.name, envDSN+"="+dsn)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killed := false
	kill = func() {
		if killed {
			return
		}
		killed = true
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // "signal: killed", as intended
	}
	t.Cleanup(kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "before the commit <nil>\n" {
		t.Fatalf("the process says %q, %v", line, err)
	}
	return kill
}

// TestLostConnectionAtCommitIsUnknown has the server cut the connection before
// it hears of the commit. The client cannot tell this from a lost answer.
func TestLostConnectionAtCommitIsUnknown(t *testing.T) {
	onServers(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		err := db.withTx(t.Context(), 34, func(tx *sql.Tx) error {
			if err := db.write(t.Context(), 34)(tx); err != nil {
				return err
			}
			db.cut(t, tx)
			return nil
		})
		if !errors.Is(err, sqlfence.ErrUnknownOutcome) {
			t.Errorf("have %v, want ErrUnknownOutcome", err)
		}
		db.wantWrites(t, 0)
	})
}

// An operation finds out by itself, and begins again.
func TestLostConnectionAtCommitOfAnOperation(t *testing.T) {
	onServers(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		runs := 0
		apply := func(tx *sql.Tx) ([]byte, error) {
			runs++
			_, err := db.pay(34, nil)(tx)
			if runs <= 2 {
				db.cut(t, tx)
			}
			return nil, err
		}
		op := sqlfence.Operation{ID: "o", Resource: "r", Token: 34}
		if _, err := db.once(t.Context(), op, apply, sqlfence.Attempts(1)); !errors.Is(err, sqlfence.ErrUnknownOutcome) {
			t.Errorf("have %v, want ErrUnknownOutcome from the only attempt", err)
		}
		got, err := db.once(t.Context(), op, apply)
		wantResult(t, got, err, nil, 34, false)
		if runs != 3 {
			t.Errorf("fn ran %d times, want 3", runs)
		}
		db.wantWrites(t, 1)
	})
}

// TestLostReplyToCommit loses what the server says to a commit that it made.
func TestLostReplyToCommit(t *testing.T) {
	onServers(t, func(t *testing.T, b *backend) {
		dsn := b.create(t)
		direct := &database{DB: b.open(t, dsn), backend: b}
		if err := direct.migrate(t); err != nil {
			t.Fatal(err)
		}
		exec(t, direct, b.createWrites)
		link, dsn := relayTo(t, dsn)
		db := &database{DB: b.open(t, dsn), backend: b}

		link.dropReplyToCommit()
		err := db.withTx(t.Context(), 34, db.write(t.Context(), 34))
		if !errors.Is(err, sqlfence.ErrUnknownOutcome) {
			t.Errorf("have %v, want ErrUnknownOutcome", err)
		}
		direct.wantWrites(t, 1)

		link.dropReplyToCommit()
		got, err := db.once(t.Context(), sqlfence.Operation{ID: "o", Resource: "r", Token: 34}, db.pay(34, []byte("receipt")))
		wantResult(t, got, err, []byte("receipt"), 34, true)
		direct.wantWrites(t, 2)
	})
}

// TestLostReplyAndThenNothing loses the reply to the commit and, from then on, the
// server: what Once hears last says nothing about the commit.
func TestLostReplyAndThenNothing(t *testing.T) {
	onServers(t, func(t *testing.T, b *backend) {
		dsn := b.create(t)
		direct := &database{DB: b.open(t, dsn), backend: b}
		if err := direct.migrate(t); err != nil {
			t.Fatal(err)
		}
		exec(t, direct, b.createWrites)
		link, dsn := relayTo(t, dsn)
		db := &database{DB: b.open(t, dsn), backend: b}
		link.last.Store(true)
		link.dropReplyToCommit()
		op := sqlfence.Operation{ID: "o", Resource: "r", Token: 34}
		if _, err := db.once(t.Context(), op, db.pay(34, []byte("receipt"))); !errors.Is(err, sqlfence.ErrUnknownOutcome) {
			t.Errorf("have %v, want ErrUnknownOutcome: it was committed", err)
		}
		direct.wantWrites(t, 1)
		link.last.Store(false)
		got, err := db.once(t.Context(), op, unreachable(t))
		wantResult(t, got, err, []byte("receipt"), 34, true)
	})
}

// An operation that was lost before its commit, and is refused when it is tried
// again, is not an open question.
func TestLostConnectionAndThenARefusal(t *testing.T) {
	onServers(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		op := sqlfence.Operation{ID: "o", Resource: "r", Token: 34}
		_, err := db.once(t.Context(), op, func(tx *sql.Tx) ([]byte, error) {
			_, err := db.pay(34, nil)(tx)
			db.cut(t, tx)
			return nil, errors.Join(err, db.store().Admit(t.Context(), "r", 35))
		})
		wantStale(t, err, 34, 35)
		if errors.Is(err, sqlfence.ErrUnknownOutcome) {
			t.Errorf("%v: want no question about the outcome", err)
		}
		db.wantWrites(t, 0)
	})
}

// A commit that the server refuses has written nothing, and it is no question.
func TestRefusedCommitIsNotUnknown(t *testing.T) {
	for _, b := range backends {
		makes := map[sqlfence.Database][]string{
			sqlfence.PostgreSQL: {"CREATE TABLE late (n bigint UNIQUE DEFERRABLE INITIALLY DEFERRED)", "INSERT INTO late VALUES (1)"},
			sqlfence.SQLite:     {"CREATE TABLE early (n INTEGER PRIMARY KEY)", "CREATE TABLE late (n INTEGER REFERENCES early DEFERRABLE INITIALLY DEFERRED)"},
		}[b.kind]
		if makes == nil {
			continue // MySQL checks every constraint at once
		}
		t.Run(b.name, func(t *testing.T) {
			dsn := b.create(t)
			if b.kind == sqlfence.SQLite {
				dsn += "&_pragma=foreign_keys(on)"
			}
			db := &database{DB: b.open(t, dsn), backend: b}
			if err := db.migrate(t); err != nil {
				t.Fatal(err)
			}
			for _, statement := range makes {
				exec(t, db, statement)
			}
			runs := 0
			err := db.withTx(t.Context(), 34, func(tx *sql.Tx) error {
				runs++
				_, err := tx.Exec("INSERT INTO late VALUES (1)")
				return err
			})
			if err == nil || errors.Is(err, sqlfence.ErrUnknownOutcome) || !strings.Contains(err.Error(), "commit") || runs != 1 {
				t.Errorf("%d runs, %v, want that the commit was refused", runs, err)
			}
			if n := db.number(t, "SELECT count(*) FROM coord_fence"); n != 0 {
				t.Errorf("%d marks of a transaction that was refused", n)
			}
		})
	}
}

// In SQLite with a rollback journal a reader can be in the way of a commit.
func TestBusyCommitIsRepeated(t *testing.T) {
	b := sqlite("SQLite", "delete")
	dsn := strings.Replace(b.create(t), "busy_timeout(20000)", "busy_timeout(0)", 1)
	db := &database{DB: b.open(t, dsn), backend: b}
	if err := db.migrate(t); err != nil {
		t.Fatal(err)
	}
	exec(t, db, b.createWrites)
	reader := db.begin(t)
	var n int64
	if err := reader.QueryRow("SELECT count(*) FROM writes").Scan(&n); err != nil {
		t.Fatal(err)
	}
	runs := 0
	err := db.withTx(t.Context(), 34, func(tx *sql.Tx) error {
		if runs++; runs == 3 {
			if err := reader.Rollback(); err != nil {
				return err
			}
		}
		return db.write(t.Context(), 34)(tx)
	})
	if err != nil || runs != 3 {
		t.Errorf("%d runs, %v, want success when the reader has gone", runs, err)
	}
	db.wantWrites(t, 1)
}
