package sqlfence_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
	"github.com/coordd/coord/internal/mariadbtest"
)

// TestOperationsAreAppliedOnceWhileConnectionsAreCut has callers repeat
// operations until they hear of a result, while somebody ends connections at any
// moment. Which, and when, is left to chance and not repeated by a seed.
func TestOperationsAreAppliedOnceWhileConnectionsAreCut(t *testing.T) {
	onServers(t, func(t *testing.T, b *backend) {
		dsn := b.create(t)
		db := &database{DB: b.open(t, dsn), backend: b}
		if err := db.migrate(t); err != nil {
			t.Fatal(err)
		}
		exec(t, db, b.createWrites)
		pool, err := sql.Open(b.driver, callersOf(t, db, dsn))
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close() // its error tells of connections that were cut
		callers := &database{DB: pool, backend: b}

		ctx, stop := context.WithCancel(t.Context())
		var killer sync.WaitGroup
		var cut atomic.Int64
		killer.Go(func() {
			for ctx.Err() == nil {
				cut.Add(cutOne(db))
				time.Sleep(rand.N(4 * time.Millisecond))
			}
		})
		const repeats, enough = 4, 20
		var failed atomic.Int64
		var done [repeats]int64
		deadline := time.Now().Add(30 * time.Second)
		atOnce(repeats, func(caller int) {
			for i := 0; cut.Load() < enough && time.Now().Before(deadline); i++ {
				failed.Add(callUntilDone(t, callers, i, fence.Token(100+caller)))
				done[caller]++
			}
		})
		stop()
		killer.Wait()
		operations := slices.Max(done[:])
		db.wantWrites(t, operations)
		if n := db.number(t, "SELECT count(DISTINCT token) FROM writes"); n != operations {
			t.Errorf("%d different operations were applied, want %d", n, operations)
		}
		if cut.Load() < enough {
			t.Errorf("only %d connections were cut, and %d calls failed", cut.Load(), failed.Load())
		}
	})
}

// callUntilDone returns how many calls have failed.
func callUntilDone(t *testing.T, db *database, i int, token fence.Token) (failed int64) {
	t.Helper()
	op := sqlfence.Operation{ID: fmt.Sprint("op", i), Resource: fmt.Sprint("r", i), Token: token}
	want := fmt.Sprint("result ", i)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); failed++ {
		got, err := db.once(context.Background(), op, func(tx *sql.Tx) ([]byte, error) {
			return []byte(want), db.write(context.Background(), fence.Token(i+1))(tx)
		})
		if err != nil {
			continue
		}
		if string(got.Data) != want {
			t.Errorf("operation %d: %+v", i, got)
		}
		return failed
	}
	t.Errorf("operation %d was not done in time", i)
	return failed
}

// callersOf returns the connection string of callers that cutOne can tell from
// itself.
func callersOf(t *testing.T, db *database, dsn string) string {
	t.Helper()
	if db.backend.kind == sqlfence.PostgreSQL {
		return dsn + " application_name=callers"
	}
	user := "c_" + db.schema(t)
	exec(t, db, "CREATE USER "+user+"@localhost")
	exec(t, db, "GRANT ALL ON "+db.schema(t)+".* TO "+user+"@localhost")
	return strings.Replace(dsn, mariadbtest.User+"@", user+"@", 1)
}

// aCaller selects the connection of one of them.
var aCaller = map[sqlfence.Database]string{
	sqlfence.PostgreSQL: "SELECT pid FROM pg_stat_activity WHERE application_name = 'callers' ORDER BY random() LIMIT 1",
	sqlfence.MySQL:      "SELECT id FROM information_schema.processlist WHERE user LIKE 'c\\_%' ORDER BY rand() LIMIT 1",
}

// cutOne ends the connection of one of the callers and returns 1, or 0 if there
// is none at the moment.
func cutOne(db *database) int64 {
	var id int64
	if err := db.QueryRow(aCaller[db.backend.kind]).Scan(&id); err != nil {
		return 0
	}
	if _, err := db.Exec(fmt.Sprintf(db.backend.kill, id)); err != nil {
		return 0 // it has ended already
	}
	return 1
}
