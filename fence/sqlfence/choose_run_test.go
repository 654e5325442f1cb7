package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/coordtest"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/lock"
)

const choosePage = "../../docs/choose.md"

// TestChooseShowsTheCodeThatRuns compares the page with choose_test.go: the same
// functions in the same order, to the letter.
func TestChooseShowsTheCodeThatRuns(t *testing.T) {
	page, err := os.ReadFile(choosePage)
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("choose_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		shown = append(shown, strings.TrimSpace(block[1]))
	}
	_, functions, _ := strings.Cut(string(code), "\nfunc ")
	runs := strings.Split("func "+functions, "\n\nfunc ")
	for i, function := range runs {
		runs[i] = "func " + strings.TrimPrefix(strings.TrimSpace(function), "func ")
	}
	if len(shown) != len(runs) || len(shown) < 9 {
		t.Fatalf("the page shows %d functions, the file has %d", len(shown), len(runs))
	}
	for i := range shown {
		if shown[i] != runs[i] {
			t.Errorf("the page shows\n%s\nand this runs\n%s", shown[i], runs[i])
		}
	}
}

// The links of the table lead to headings of the page.
func TestChooseLinksToItsSections(t *testing.T) {
	page, err := os.ReadFile(choosePage)
	if err != nil {
		t.Fatal(err)
	}
	headings := map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(page), -1) {
		headings[strings.ReplaceAll(strings.ToLower(h[1]), " ", "-")] = true
	}
	links := regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(string(page), -1)
	if len(links) < 9 {
		t.Errorf("%d links", len(links))
	}
	for _, link := range links {
		if !headings[link[1]] {
			t.Errorf("no section %s", link[1])
		}
	}
}

// chooseDatabase has the tables that the page speaks of.
func chooseDatabase(t *testing.T) *database {
	t.Helper()
	db := backends[0].migrated(t)
	exec(t, db, `
CREATE TABLE members  (name text NOT NULL);
CREATE TABLE accounts (name text PRIMARY KEY, balance bigint NOT NULL);
CREATE TABLE orders   (id bigint PRIMARY KEY, credit bigint NOT NULL, total bigint NOT NULL DEFAULT 0);
CREATE TABLE lines    (order_id bigint NOT NULL REFERENCES orders, price bigint NOT NULL);
CREATE TABLE jobs     (id bigint PRIMARY KEY, done boolean NOT NULL DEFAULT false);
CREATE TABLE pages    (id bigint PRIMARY KEY, title text NOT NULL, version bigint NOT NULL);
CREATE TABLE reports  (text text NOT NULL);
INSERT INTO accounts VALUES ('alice', 100), ('bob', 100);
INSERT INTO orders VALUES (1, 100, 0);
INSERT INTO jobs SELECT generate_series(1, 20);
INSERT INTO pages VALUES (1, 'old', 7);
INSERT INTO reports VALUES ('');`)
	return db
}

// atOnce calls f n times at the same time.
func atOnce(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// TestCheckThenInsertUnderALockLetsTwoIn stops the holder between its two
// statements, in the database, and its client like a process that stands still.
func TestCheckThenInsertUnderALockLetsTwoIn(t *testing.T) {
	skipIfShort(t)
	db := chooseDatabase(t)
	c := coordtest.Start(t, coordtest.SessionTimeout(time.Second))
	first, second := c.Dial(), c.Dial()
	barrier := db.begin(t)
	exec(t, barrier, "LOCK TABLE members IN SHARE ROW EXCLUSIVE MODE") // one may read, not insert
	registered := make(chan error, 2)
	register := func(m *lock.Mutex) { registered <- registerUnderLock(context.Background(), m, db.DB, "carol") }

	go register(lock.New(first, "/locks/members"))
	db.waitBlocked(t, 1) // it has looked, and is about to insert
	resume := c.Pause(first)
	go register(lock.New(second, "/locks/members"))
	db.waitBlocked(t, 2)
	if err := barrier.Commit(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both inserts", func() bool { return db.number(t, "SELECT count(*) FROM members") == 2 })
	resume()
	<-registered // the first hears of its loss now, which is too late
	<-registered
}

func TestUniqueConstraintLetsOneIn(t *testing.T) {
	db := chooseDatabase(t)
	var isNew atomic.Int64
	atOnce(8, func(int) {
		won, err := register(context.Background(), db.DB, "carol")
		if err != nil {
			t.Error(err)
		}
		if won {
			isNew.Add(1)
		}
	})
	if n := isNew.Load(); n != 1 {
		t.Errorf("%d were told that the account is new", n)
	}
}

func TestTransferKeepsTheSum(t *testing.T) {
	db := chooseDatabase(t)
	atOnce(8, func(i int) {
		from, to := "alice", "bob"
		if i%2 == 1 {
			from, to = to, from
		}
		for range 10 {
			err := errors.New("not tried")
			for state := "40P01"; state == "40P01"; state = stateOf(err) {
				err = transfer(context.Background(), db.DB, from, to, 30)
			}
			if err != nil && !errors.Is(err, errNotTransferred) {
				t.Error(err)
			}
		}
	})
	if err := transfer(t.Context(), db.DB, "alice", "nobody", 1); !errors.Is(err, errNotTransferred) {
		t.Errorf("have %v, want errNotTransferred", err)
	}
	if sum := db.number(t, "SELECT sum(balance) FROM accounts"); sum != 200 {
		t.Errorf("the sum is %d", sum)
	}
	if least := db.number(t, "SELECT min(balance) FROM accounts"); least < 0 {
		t.Errorf("a balance is %d", least)
	}
}

func stateOf(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}
	return ""
}

func TestRowLockKeepsTheCredit(t *testing.T) {
	db := chooseDatabase(t)
	var refused atomic.Int64
	atOnce(8, func(int) {
		if err := addLine(context.Background(), db.DB, 1, 30); errors.Is(err, errOverCredit) {
			refused.Add(1)
		} else if err != nil {
			t.Error(err)
		}
	})
	if n := refused.Load(); n != 5 {
		t.Errorf("%d lines were refused, want 5 of 8", n)
	}
	if total, sum := db.number(t, "SELECT total FROM orders"), db.number(t, "SELECT sum(price) FROM lines"); total != 90 || sum != 90 {
		t.Errorf("the total is %d, the lines come to %d", total, sum)
	}
}

func TestJobsAreSharedOut(t *testing.T) {
	db := chooseDatabase(t)
	var mu sync.Mutex
	done := map[int64]int{}
	atOnce(4, func(int) {
		for {
			err := doNextJob(context.Background(), db.DB, func(id int64) error {
				mu.Lock()
				defer mu.Unlock()
				done[id]++
				return nil
			})
			if errors.Is(err, sql.ErrNoRows) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	if len(done) != 20 {
		t.Errorf("%d jobs of 20 were done", len(done))
	}
	for id, n := range done {
		if n != 1 {
			t.Errorf("job %d was done %d times", id, n)
		}
	}
}

func TestAdvisoryLockLetsOneRun(t *testing.T) {
	db := chooseDatabase(t)
	inside, leave := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		ran, err := cleanUp(context.Background(), db.DB, func(*sql.Tx) error { close(inside); <-leave; return nil })
		if !ran {
			t.Error("the first did not run")
		}
		first <- err
	}()
	<-inside
	if ran, err := cleanUp(t.Context(), db.DB, func(*sql.Tx) error { t.Error("two at once"); return nil }); ran || err != nil {
		t.Errorf("ran %v, %v, want that another is at it", ran, err)
	}
	close(leave)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if ran, err := cleanUp(t.Context(), db.DB, func(*sql.Tx) error { return nil }); !ran || err != nil {
		t.Errorf("ran %v, %v, want it to run afterwards", ran, err)
	}
}

func TestVersionTellsTheSecondEditor(t *testing.T) {
	db := chooseDatabase(t)
	var told atomic.Int64
	atOnce(8, func(int) {
		if err := rename(context.Background(), db.DB, 1, 7, "new"); errors.Is(err, errEditedMeanwhile) {
			told.Add(1)
		} else if err != nil {
			t.Error(err)
		}
	})
	if n := told.Load(); n != 7 {
		t.Errorf("%d of 8 were told", n)
	}
}

func TestIdempotencyKeyPaysOnce(t *testing.T) {
	db := chooseDatabase(t)
	atOnce(8, func(int) {
		if receipt, err := pay(context.Background(), db.DB, "click-1", "alice", 30); err != nil || receipt != "paid, 70 left" {
			t.Errorf("have %q, %v", receipt, err)
		}
	})
	if receipt, err := pay(t.Context(), db.DB, "click-2", "alice", 30); err != nil || receipt != "paid, 40 left" {
		t.Errorf("another request: %q, %v", receipt, err)
	}
	if _, err := pay(t.Context(), db.DB, "click-3", "alice", 41); !errors.Is(err, errNotPaid) {
		t.Errorf("have %v, want errNotPaid", err)
	}
	if left := db.number(t, "SELECT balance FROM accounts WHERE name = 'alice'"); left != 40 {
		t.Errorf("%d left, want 40", left)
	}
}

// TestFencedReportKeepsTheNewer pauses the holder while it builds its report.
func TestFencedReportKeepsTheNewer(t *testing.T) {
	skipIfShort(t)
	db := chooseDatabase(t)
	pausedDB := backends[0].open(t, postgresServer.Get(t).DSN("")+" search_path="+db.schema(t))
	c := coordtest.Start(t, coordtest.SessionTimeout(time.Second))
	first, second := c.Dial(), c.Dial()
	report := func(text string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return text, nil }
	}
	building, finish := make(chan struct{}), make(chan struct{})
	late := make(chan error, 1)
	go func() {
		late <- writeReport(context.Background(), first, pausedDB, func(context.Context) (string, error) {
			close(building)
			<-finish
			return "old", nil
		})
	}()
	<-building
	resume := c.Pause(first)
	if err := writeReport(t.Context(), second, db.DB, report("new")); err != nil {
		t.Fatal(err)
	}
	close(finish) // the first goes on where it stood, and has not looked at anything
	eventually(t, "its write to be over", func() bool {
		stats := pausedDB.Stats()
		return stats.OpenConnections == 1 && stats.InUse == 0
	})
	resume()
	if err := <-late; !errors.Is(err, fence.ErrStale) {
		t.Errorf("have %v, want that the late report was refused", err)
	}
	var text string
	if err := db.QueryRow("SELECT text FROM reports").Scan(&text); err != nil || text != "new" {
		t.Errorf("the report is %q, %v", text, err)
	}
}
