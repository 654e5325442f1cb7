package check

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Save keeps what a run has left in a directory, which it makes: the history, what
// was found, a timeline of each path and session that a violation is about, and a
// drawing of each search for a linearization. notes are lines that say how to run
// it again, such as the seed.
func Save(dir string, h *History, found []Violation, notes ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := write(dir, "history.jsonl", h.Write); err != nil {
		return err
	}
	err := write(dir, "violations.txt", func(w io.Writer) error {
		for _, n := range notes {
			fmt.Fprintln(w, n)
		}
		for _, v := range found {
			fmt.Fprintf(w, "%s\n", v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return saveDrawings(dir, h.Records(), found)
}

func saveDrawings(dir string, all []Record, found []Violation) error {
	drawn := map[string]bool{}
	for i, v := range found {
		for _, subject := range v.subjects() {
			name := "timeline" + strings.NewReplacer("/", "_", "\x00", "").Replace(subject) + ".txt"
			if drawn[name] {
				continue
			}
			drawn[name] = true
			err := write(dir, name, func(w io.Writer) error { return Timeline(w, all, subject, v.Records) })
			if err != nil {
				return err
			}
		}
		if v.drawing != nil {
			err := porcupine.VisualizePath(znodes, v.drawing.info, filepath.Join(dir, fmt.Sprintf("linearizable-%d.html", i+1)))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// subjects are what a violation is about: a path, and the sessions of its records.
func (v *Violation) subjects() []string {
	var out []string
	if v.Path != "" {
		out = append(out, v.Path)
	}
	for i := range v.Records {
		for _, s := range []sessionKey{v.Records[i].Session, v.Records[i].Stat.Owner} {
			if s != 0 && !slices.Contains(out, s.String()) {
				out = append(out, s.String())
			}
		}
	}
	return out
}

func write(dir, name string, to func(io.Writer) error) error {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if err := to(f); err != nil {
		_ = f.Close() // the first error counts
		return err
	}
	return f.Close()
}

// width of the bar of a timeline.
const width = 60

// Timeline draws the records of a path, or of a session by its id, in the order of
// their beginnings, with a bar that shows when each was. Those in marked have a
// star.
func Timeline(w io.Writer, all []Record, subject string, marked []Record) error {
	var lines []Record
	for i := range all {
		if r := &all[i]; r.isAbout(subject) {
			lines = append(lines, *r)
		}
	}
	slices.SortStableFunc(lines, func(a, b Record) int { return cmp.Compare(a.Begin, b.Begin) })
	if len(lines) == 0 {
		return nil
	}
	first, last := lines[0].Begin, lines[0].Begin
	for _, r := range lines {
		last = max(last, r.Begin, r.End)
	}
	fmt.Fprintf(w, "%s, from %v to %v\n", subject, first, last)
	for _, r := range lines {
		mark := " "
		if slices.ContainsFunc(marked, func(m Record) bool { return m.N == r.N }) {
			mark = "*"
		}
		if _, err := fmt.Fprintf(w, "%s |%s| %-28s %s\n", mark, bar(&r, float64(first), float64(max(1, last-first))), span(&r), r.String()); err != nil {
			return err
		}
	}
	return nil
}

// bar is the record on the line of time; what is open in the end has an arrow.
func bar(r *Record, first, length float64) string {
	at := func(t float64) int { return min(width-1, max(0, int((t-first)/length*float64(width-1)))) }
	b := []byte(strings.Repeat(" ", width))
	from, to := at(float64(r.Begin)), at(float64(r.End))
	if r.Outcome == Unknown {
		to = width - 1
	}
	for i := from; i <= to; i++ {
		b[i] = '-'
	}
	b[from] = '['
	switch {
	case r.Outcome == Unknown:
		b[to] = '>'
	case to > from:
		b[to] = ']'
	default:
		b[from] = 'o'
	}
	return string(b)
}

// isAbout is whether the record belongs into the timeline of a path or session.
func (r *Record) isAbout(subject string) bool {
	if r.Path == subject || r.Made == subject || r.Session.String() == subject || r.Stat.Owner.String() == subject {
		return true
	}
	return slices.ContainsFunc(r.Ops, func(op Record) bool { return op.Path == subject || op.Made == subject })
}
