// Package server is what a client talks to: the gRPC services of api/coordpb,
// health, reflection, and the HTTP port with metrics. It turns what clients
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
// # Locks
//
// In this order, and never the other way round:
//
//	the machine's lock (held by callbacks of fsm and by Machine.View)
//	hub.mu             (watch table, history, who is connected)
//	conn.mu            (what one stream has outstanding)
//	outbox.mu          (what waits to be sent)
//
// No lock is held over I/O or a channel operation that can block.
package server
