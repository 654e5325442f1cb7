package main

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

// newLogger writes to w; level may be changed later through lv.
func newLogger(c LogConfig, w io.Writer, lv *slog.LevelVar) *slog.Logger {
	setLevel(lv, c.Level)
	opts := &slog.HandlerOptions{Level: lv}
	if c.Format == "text" || (c.Format == "auto" && isTerminal(w)) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// setLevel takes one of the names that validate allows.
func setLevel(lv *slog.LevelVar, name string) {
	switch name {
	case "debug":
		lv.Set(slog.LevelDebug)
	case "warn":
		lv.Set(slog.LevelWarn)
	case "error":
		lv.Set(slog.LevelError)
	default:
		lv.Set(slog.LevelInfo)
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func discardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }
