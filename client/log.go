package client

import (
	"context"
	"log/slog"
)

// quietLogger is the program's default logger for those who did not hand one
// in: they hear of what went wrong and of nothing else.
func quietLogger() *slog.Logger { return slog.New(warnHandler{}) }

// warnHandler passes records from Warn up to whatever handler is the program's
// default at that moment.
type warnHandler struct{}

func (warnHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && slog.Default().Enabled(ctx, l)
}

func (warnHandler) Handle(ctx context.Context, r slog.Record) error {
	return slog.Default().Handler().Handle(ctx, r)
}

func (warnHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return slog.Default().Handler().WithAttrs(as)
}

func (warnHandler) WithGroup(name string) slog.Handler {
	return slog.Default().Handler().WithGroup(name)
}
