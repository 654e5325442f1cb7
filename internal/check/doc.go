// Package check judges what clients of a cluster have seen. Clients write down
// each thing they do and see in a [History]; [Check] reads it afterwards and says
// which promise of docs/guarantees.md it breaks, with the records that show it.
//
//	h := check.New(nil)
//	c := h.Client("writer", dialed)        // records the session, too
//	c.Create(ctx, "/a", "one", 0)          // does it, and records it
//	c.Get(ctx, "/a", client.Linearizable)
//	...
//	for _, v := range check.Check(h, check.Options{}) { t.Error(v) }
//
// A check is about what is in the history and nothing else: who wants a write to
// be looked for in the end reads its znode in the end, linearizably. A workload
// gives each write data of its own, so that a change can be told from any other.
//
// Nothing here looks into a server. A History and a Client may be used from any
// goroutine.
package check
