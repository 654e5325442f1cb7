package cluster

import (
	"context"
	"log/slog"
)

// overtaken is what Raft says when it is told of a commit whose entry is still
// under way to it.
const overtaken = "failed to get previous log"

// quietHandler turns warnings into debug lines while quiet says so. Raft warns
// of every connection that ends, also when this server is the one that stops,
// and of every peer that has no log yet, also when the cluster is only being
// formed. It also warns whenever a commit message overtakes the entry it is
// about, which is routine. Errors always pass.
type quietHandler struct {
	slog.Handler
	quiet func() bool
}

// Enabled implements slog.Handler.
func (h quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	if level == slog.LevelWarn && h.quiet() {
		level = slog.LevelDebug
	}
	return h.Handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn && (r.Message == overtaken || h.quiet()) {
		r.Level = slog.LevelDebug
		if !h.Handler.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(attrs), h.quiet}
}

// WithGroup implements slog.Handler.
func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name), h.quiet}
}

// raftLog is where Raft and its transport log.
func (n *Node) raftLog() *slog.Logger {
	quiet := func() bool { return n.stopping.Load() || n.raft.Load() == nil || n.Formed() != nil }
	return slog.New(quietHandler{n.log.Handler(), quiet})
}
