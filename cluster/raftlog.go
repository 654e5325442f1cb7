package cluster

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// repeatAfter is how often the same message may be logged. Raft complains
	// ten times a second about a follower that is down.
	repeatAfter = 10 * time.Second
	// maxRepeated bounds how many different messages are remembered.
	maxRepeated = 64
)

// raftLogger writes what hashicorp/raft and its stores log to a slog.Logger. It
// is safe for concurrent use.
//
// Raft's errors become warnings: nearly all of them are about a peer that does
// not answer and heal by themselves, and those that do not heal (a failing disk)
// are reported by the watch of the disk.
type raftLogger struct {
	out      *slog.Logger
	name     string
	implied  []any // key, value, ...
	repeated *repeatFilter
}

// newRaftLogger returns the logger for raft.Config and the stores.
func newRaftLogger(out *slog.Logger) hclog.Logger {
	return &raftLogger{out: out, repeated: &repeatFilter{}}
}

// Log implements hclog.Logger.
func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
	lv, ok := slogLevel(level)
	if !ok || !l.out.Enabled(context.Background(), lv) {
		return
	}
	attrs := slogAttrs(append(l.implied[:len(l.implied):len(l.implied)], args...))
	if lv >= slog.LevelWarn {
		suppressed, ok := l.repeated.allow(repeatKey(msg, attrs), time.Now())
		if !ok {
			return
		}
		if suppressed > 0 {
			attrs = append(attrs, slog.Int("repeated", suppressed))
		}
	}
	if l.name != "" {
		msg = l.name + ": " + msg
	}
	l.out.LogAttrs(context.Background(), lv, msg, attrs...)
}

func slogLevel(level hclog.Level) (slog.Level, bool) {
	switch level {
	case hclog.Trace:
		return slog.LevelDebug - 4, true
	case hclog.Debug:
		return slog.LevelDebug, true
	case hclog.Info, hclog.NoLevel:
		return slog.LevelInfo, true
	case hclog.Warn, hclog.Error:
		return slog.LevelWarn, true
	default: // hclog.Off
		return 0, false
	}
}

// slogAttrs pairs up keys and values. Raft's key "error" is ours "err".
func slogAttrs(args []any) []slog.Attr {
	attrs := make([]slog.Attr, 0, len(args)/2+1)
	for len(args) > 0 {
		if len(args) == 1 {
			return append(attrs, slog.String("extra", fmt.Sprint(plain(args[0]))))
		}
		key, ok := args[0].(string)
		if !ok {
			key = fmt.Sprint(args[0])
		}
		if key == "error" {
			key = "err"
		}
		attrs = append(attrs, slog.Any(key, plain(args[1])))
		args = args[2:]
	}
	return attrs
}

// plain turns a value of hclog into one that prints as it was meant.
func plain(v any) any {
	switch v := v.(type) {
	case nil:
		return nil
	case hclog.Format: // hclog.Fmt(format, args...)
		if len(v) == 0 {
			return ""
		}
		if format, ok := v[0].(string); ok {
			return fmt.Sprintf(format, v[1:]...)
		}
		return fmt.Sprint(v...)
	case hclog.Hex:
		return fmt.Sprintf("0x%x", int(v))
	case hclog.Octal:
		return fmt.Sprintf("0%o", int(v))
	case hclog.Binary:
		return fmt.Sprintf("0b%b", int(v))
	case hclog.Quote:
		return string(v)
	case error, fmt.Stringer:
		return fmt.Sprint(v) // also safe for a nil pointer inside
	case string, bool, int, int64, uint64, float64:
		return v
	default:
		return fmt.Sprintf("%+v", v)
	}
}

// repeatKey is the message with the peer it is about.
func repeatKey(msg string, attrs []slog.Attr) string {
	for _, a := range attrs {
		if a.Key == "peer" {
			return msg + " " + a.Value.String()
		}
	}
	return msg
}

// repeatFilter lets one message of a kind through each repeatAfter and counts
// the others.
type repeatFilter struct {
	mu   sync.Mutex
	seen map[string]*repeat
}

type repeat struct {
	since      time.Time
	suppressed int
}

func (f *repeatFilter) allow(key string, now time.Time) (suppressed int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.seen[key]
	if r != nil && now.Sub(r.since) < repeatAfter {
		r.suppressed++
		return 0, false
	}
	if r != nil {
		suppressed = r.suppressed
	}
	if f.seen == nil || len(f.seen) >= maxRepeated {
		f.seen = make(map[string]*repeat)
	}
	f.seen[key] = &repeat{since: now}
	return suppressed, true
}

// Trace implements hclog.Logger.
func (l *raftLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }

// Debug implements hclog.Logger.
func (l *raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }

// Info implements hclog.Logger.
func (l *raftLogger) Info(msg string, args ...any) { l.Log(hclog.Info, msg, args...) }

// Warn implements hclog.Logger.
func (l *raftLogger) Warn(msg string, args ...any) { l.Log(hclog.Warn, msg, args...) }

// Error implements hclog.Logger.
func (l *raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *raftLogger) enabled(level slog.Level) bool {
	return l.out.Enabled(context.Background(), level)
}

// IsTrace implements hclog.Logger.
func (l *raftLogger) IsTrace() bool { return l.enabled(slog.LevelDebug - 4) }

// IsDebug implements hclog.Logger.
func (l *raftLogger) IsDebug() bool { return l.enabled(slog.LevelDebug) }

// IsInfo implements hclog.Logger.
func (l *raftLogger) IsInfo() bool { return l.enabled(slog.LevelInfo) }

// IsWarn implements hclog.Logger.
func (l *raftLogger) IsWarn() bool { return l.enabled(slog.LevelWarn) }

// IsError implements hclog.Logger.
func (l *raftLogger) IsError() bool { return l.enabled(slog.LevelWarn) }

// ImpliedArgs implements hclog.Logger.
func (l *raftLogger) ImpliedArgs() []any { return l.implied }

// With implements hclog.Logger.
func (l *raftLogger) With(args ...any) hclog.Logger {
	c := *l
	c.implied = append(l.implied[:len(l.implied):len(l.implied)], args...)
	return &c
}

// Name implements hclog.Logger.
func (l *raftLogger) Name() string { return l.name }

// Named implements hclog.Logger.
func (l *raftLogger) Named(name string) hclog.Logger {
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}

// ResetNamed implements hclog.Logger.
func (l *raftLogger) ResetNamed(name string) hclog.Logger {
	c := *l
	c.name = name
	return &c
}

// SetLevel implements hclog.Logger; the level is that of the slog.Handler.
func (l *raftLogger) SetLevel(hclog.Level) {}

// GetLevel implements hclog.Logger.
func (l *raftLogger) GetLevel() hclog.Level {
	switch {
	case l.IsTrace():
		return hclog.Trace
	case l.IsDebug():
		return hclog.Debug
	case l.IsInfo():
		return hclog.Info
	case l.IsWarn():
		return hclog.Warn
	default:
		return hclog.Off
	}
}

// StandardLogger implements hclog.Logger.
func (l *raftLogger) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(o), "", 0)
}

// StandardWriter implements hclog.Logger.
func (l *raftLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{l} }

// lineWriter logs each write as a line.
type lineWriter struct{ l *raftLogger }

func (w lineWriter) Write(p []byte) (int, error) {
	w.l.Info(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}
