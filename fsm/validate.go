package fsm

import (
	"fmt"
	"sync"

	"github.com/coordd/coord/znode"
)

// validators are decoders between two uses: the leader validates every command
// that other servers forward.
var validators = sync.Pool{New: func() any { return new(decoder) }}

// Validate reports whether a command may come to the leader from another
// server: it decodes, travels on a line its kind may travel on, and is not one
// that only the leader proposes. The leader calls it before the log; whatever
// passes applies on every replica without an error of decoding.
func Validate(b []byte) error {
	d := validators.Get().(*decoder)
	defer validators.Put(d)
	defer d.release()
	if err := d.decode(b); err != nil {
		return err
	}
	if d.Kind.leaderOnly() {
		return fmt.Errorf("%s is for the leader alone: %w", d.Kind, ErrMalformed)
	}
	if err := checkLine(&d.Command); err != nil {
		return err
	}
	if d.Kind == CmdSkip && !d.Code.known() {
		return fmt.Errorf("skip with unknown code %d: %w", d.Code, ErrMalformed)
	}
	return checkCaller(&d.Command)
}

// checkLine refuses a command on a line it does not belong to, and a number
// that does not fit: 0 on a line, anything else without.
func checkLine(c *Command) error {
	line := c.Line.kind()
	if c.Kind.lineWanted()&line == 0 {
		return fmt.Errorf("%s on the wrong line: %w", c.Kind, ErrMalformed)
	}
	if (c.Seq == 0) != (line == lineNone) {
		return fmt.Errorf("%s with number %d: %w", c.Kind, c.Seq, ErrMalformed)
	}
	return nil
}

// checkCaller refuses what a write in a session may not say about itself: who
// it is stands in the table.
func checkCaller(c *Command) error {
	w := c.Write
	if w == nil || c.Line.kind() != lineSession {
		return nil
	}
	if w.Trusted || len(w.Identities) > 0 || w.RequestID != "" {
		return fmt.Errorf("write in a session with a caller or request id of its own: %w", znode.ErrBadArguments)
	}
	return nil
}
