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

// apiVersion stands in every JSON document; within v1 fields are only added.
const apiVersion = "coordctl/v1"

// table is rows of cells below a header. Wide columns are shown only with
// --output wide.
type table struct {
	header []string
	wide   []string
	rows   [][]string // each as long as header and wide together
}

// object prints one value; text prints it for people.
func (e *env) object(kind string, value any, text func(w io.Writer) error) error {
	switch {
	case e.output == "ndjson":
		return e.line(kind, value)
	case e.isJSON():
		v, err := tagged(kind, value)
		if err != nil {
			return err
		}
		return e.printJSON(v)
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
	_, err = e.stdout.Write(append(v, '\n'))
	return err
}

// isJSON says whether output and errors are for scripts. It also holds before
// the flags were checked.
func (e *env) isJSON() bool { return e.json || e.output == "json" || e.output == "ndjson" }

// tagged puts version and kind in front of a value's fields.
func tagged(kind string, value any) (json.RawMessage, error) {
	fields, err := marshal(value)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf(`{"apiVersion":%q,"kind":%q`, apiVersion, kind)
	if bytes.Equal(fields, []byte("{}")) {
		return json.RawMessage(head + "}"), nil
	}
	return json.RawMessage(head + "," + string(fields[1:])), nil
}

// marshal is json.Marshal without the escapes that are meant for web pages.
func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func (e *env) printJSON(v json.RawMessage) error {
	var b bytes.Buffer
	if err := json.Indent(&b, v, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := e.stdout.Write(b.Bytes())
	return err
}

func (e *env) printTable(t table) error {
	return e.printRows(t, !e.noHeaders)
}

func (e *env) printRows(t table, header bool) error {
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	names := t.header
	if e.output == "wide" {
		names = append(append([]string(nil), t.header...), t.wide...)
	}
	if header {
		fmt.Fprintln(tw, strings.Join(names, "\t"))
	}
	for _, row := range t.rows {
		cells := make([]string, len(names))
		for i, cell := range row[:len(names)] {
			cells[i] = oneLine(cell)
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(e.stdout, cutLines(b.String(), e.width()))
	return err
}

// oneLine keeps a cell from breaking its table, or a terminal: names that
// others have chosen may hold anything.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '\uFFFD'
		}
		return r
	}, s)
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
// What has always been there has no age.
func since(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return ago(time.Since(time.UnixMilli(ms)))
}

func timestamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
