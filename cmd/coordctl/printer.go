package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"
)

const apiVersion = "coordctl/v1"

// table is rows of cells below a header. Wide columns are shown only with
// --output wide.
type table struct {
	header []string
	wide   []string
	rows   [][]string // each as long as header and wide together
}

// list prints items, as a table for people.
func (e *env) list(kind string, items []any, t table) error {
	switch e.output {
	case "json":
		return e.printJSON(map[string]any{"apiVersion": apiVersion, "kind": kind + "List", "items": nonNil(items)})
	case "ndjson":
		for _, item := range items {
			if err := e.line(kind, item); err != nil {
				return err
			}
		}
		return nil
	default:
		return e.printTable(t)
	}
}

func nonNil(items []any) []any {
	if items == nil {
		return []any{}
	}
	return items
}

// object prints one value; text prints it for people.
func (e *env) object(kind string, value any, text func(w io.Writer) error) error {
	switch e.output {
	case "json":
		v, err := tagged(kind, value)
		if err != nil {
			return err
		}
		return e.printJSON(v)
	case "ndjson":
		return e.line(kind, value)
	default:
		return text(e.stdout)
	}
}

// line prints one value of a stream as a line of JSON.
func (e *env) line(kind string, value any) error {
	v, err := tagged(kind, value)
	if err != nil {
		return err
	}
	return json.NewEncoder(e.stdout).Encode(v)
}

// isJSON says whether a stream prints lines of JSON.
func (e *env) isJSON() bool { return e.output == "json" || e.output == "ndjson" }

// tagged puts version and kind in front of a value's fields.
func tagged(kind string, value any) (json.RawMessage, error) {
	fields, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf(`{"apiVersion":%q,"kind":%q`, apiVersion, kind)
	if bytes.Equal(fields, []byte("{}")) {
		return json.RawMessage(head + "}"), nil
	}
	return json.RawMessage(head + "," + string(fields[1:])), nil
}

func (e *env) printJSON(v any) error {
	enc := json.NewEncoder(e.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (e *env) printTable(t table) error {
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	columns := len(t.header)
	header := t.header
	if e.output == "wide" {
		columns += len(t.wide)
		header = append(append([]string(nil), t.header...), t.wide...)
	}
	if !e.noHeaders {
		fmt.Fprintln(tw, strings.Join(header, "\t"))
	}
	for _, row := range t.rows {
		fmt.Fprintln(tw, strings.Join(row[:columns], "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(e.stdout, cutLines(b.String(), e.width()))
	return err
}

// width is that of the terminal, 0 elsewhere.
func (e *env) width() int {
	f, ok := e.stdout.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	w, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return w
}

// cutLines shortens lines to a terminal's width.
func cutLines(s string, width int) string {
	lines := strings.SplitAfter(s, "\n")
	for i, line := range lines {
		line = strings.TrimRight(line, " \n")
		if width > 1 && utf8.RuneCountInString(line) > width {
			line = string([]rune(line)[:width-1]) + "…"
		}
		if i < len(lines)-1 {
			line += "\n"
		}
		lines[i] = line
	}
	return strings.Join(lines, "")
}

// ago prints an age short: 0.4s, 12s, 14m02s, 3h05m, 12d.
func ago(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// since is the age of a time in ms since 1970 by the cluster's clock.
func since(ms int64) string { return ago(time.Since(time.UnixMilli(ms))) }

func timestamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
