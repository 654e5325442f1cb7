package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coordd/coord/znode"
)

// However long a cluster writes, its data directory stays within its budget as long
// as the state does not grow: the log is cut, files go, old snapshots go, bbolt
// uses its pages again, and what a kill has left of a snapshot goes with the next
// start.
func TestDataDirectoryKeepsItsBudget(t *testing.T) {
	for _, store := range []string{"wal", "boltdb"} {
		t.Run(store, func(t *testing.T) {
			tune := func(c *Config) { c.LogStore, c.SnapshotLogSize, c.DiskReserve = store, mib, 8*mib }
			inFakeTime(t, 1, tune, func(w *world) {
				w.start()
				w.awaitFormed()
				for i := range 20 { // the state: half a MiB
					if r := w.propose("n1", bigOp(fmt.Sprintf("/a%d", i), 25<<10)).wait(t, 5*time.Second); r.Err != nil {
						t.Fatal(r.Err)
					}
				}
				dir, most, written := w.hosts["n1"].dir, int64(0), 0
				for round := range 8 {
					for range 300 { // small and large entries, 12 MiB in all
						size := 1000 + written%170_000
						written += size
						op := znode.Op{Kind: znode.OpSet, Path: fmt.Sprintf("/a%d", written%20), Data: make([]byte, size), Version: znode.AnyVersion}
						if r := w.propose("n1", op).wait(t, 5*time.Second); r.Err != nil {
							t.Fatal(r.Err)
						}
						time.Sleep(100 * time.Millisecond) // a rate at which a second is less than what causes a snapshot
						d := w.node("n1").disk
						if err := d.measure(); err != nil {
							t.Fatal(err)
						}
						most = max(most, d.used.Load())
					}
					w.kill("n1")
					orphan := filepath.Join(dir, snapshotDir, fmt.Sprintf("1-%d-1%s", round, tmpSuffix))
					if err := os.MkdirAll(orphan, 0o700); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(orphan, "state.bin"), make([]byte, 10*mib), 0o600); err != nil {
						t.Fatal(err)
					}
					w.start("n1")
					w.awaitLeader()
				}
				budget := w.node("n1").DiskUse().Budget
				t.Logf("%d MiB written, at most %.1f MiB on the disk, budget %.1f MiB", written>>20, float64(most)/mib, float64(budget)/mib)
				if most > budget {
					t.Errorf("%d bytes on the disk, the budget is %d", most, budget)
				}
				if written < 4*int(budget) {
					t.Errorf("only %d bytes were written: the test shows nothing", written)
				}
			})
		})
	}
}
