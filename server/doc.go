// Package server is what a client talks to: the gRPC services of api/coordpb,
// health, reflection, the port for ZooKeeper's clients, and the HTTP port with
// metrics. It turns what clients
// send into proposals of package cluster and reads of the state machine, and
// what the state machine applied into replies and events.
//
// It decides nothing that replicas must agree on: that is package fsm.
//
// # How the pieces fit
//
// A conn is one session stream. Its receiver goroutine decodes requests: writes
// go to cluster.Node.Submit, reads to the reader. Whatever answers it (the apply
// hook for writes and events, the reader for reads) puts a pointer on the
// conn's outbox while it holds the lock of the state machine, and the conn's
// sender goroutine encodes and sends. So the order in the outbox is the order
// of the state, and no encoding happens under that lock.
//
// A zkConn is one connection of a ZooKeeper client; the files zk_*.go are about it.
// Its receiver goroutine puts requests through a zkPipeline, which executes or
// submits each when everything before it was; what must wait is looked at again by
// the sender goroutine. Replies and events are encoded as they are queued, into one
// zkOut, because the order on the wire is all that these clients go by.
//
// # Locks
//
// In this order, and never the other way round:
//
//	zkPipeline.mu      (the order of one connection's requests)
//	the machine's lock (held by callbacks of fsm and by Machine.View)
//	hub.mu             (watch table, history, who is connected)
//	conn.mu, zkConn.mu (what one stream has outstanding, whose it is)
//	hub.ownMu          (which session is connected where)
//	outbox.mu, zkOut.mu (what waits to be sent)
//
// No lock is held over I/O or a channel operation that can block.
package server
