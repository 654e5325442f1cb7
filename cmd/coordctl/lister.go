package main

import "bytes"

// lister prints a list while it is being read, so that a long one needs no
// memory: as a JSON document, as lines of JSON, or as a table in blocks.
type lister struct {
	*env
	kind    string
	table   table // rows that are not printed yet
	printed bool  // something was printed
}

// rowsPerBlock is how many rows of a table are lined up together.
const rowsPerBlock = 1000

// newLister begins a list of items of a kind. close must follow.
func (e *env) newLister(kind string, header, wide []string) *lister {
	return &lister{env: e, kind: kind, table: table{header: header, wide: wide}}
}

// add prints one item: row for people, item for scripts.
func (l *lister) add(item any, row ...string) error {
	switch {
	case l.output == "ndjson":
		return l.line(l.kind, item)
	case l.isJSON():
		return l.addJSON(item)
	}
	if l.table.rows = append(l.table.rows, row); len(l.table.rows) < rowsPerBlock {
		return nil
	}
	return l.flush()
}

func (l *lister) addJSON(item any) error {
	v, err := marshal(item)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if l.printed {
		b.WriteString(",")
	} else {
		b.WriteString(`{"apiVersion":"` + apiVersion + `","kind":"` + l.kind + `List","items":[`)
	}
	b.WriteString("\n  ")
	b.Write(v)
	l.printed = true
	_, err = l.stdout.Write(b.Bytes())
	return err
}

func (l *lister) flush() error {
	err := l.printRows(l.table, !l.noHeaders && !l.printed)
	l.table.rows, l.printed = l.table.rows[:0], true
	return err
}

// close prints what is left. It must not be called after an error: a document
// that ends early must not look complete.
func (l *lister) close() error {
	switch {
	case l.output == "ndjson":
		return nil
	case !l.isJSON():
		if len(l.table.rows) == 0 && l.printed {
			return nil
		}
		return l.flush()
	case !l.printed:
		_, err := l.stdout.Write([]byte(`{"apiVersion":"` + apiVersion + `","kind":"` + l.kind + `List","items":[]}` + "\n"))
		return err
	default:
		_, err := l.stdout.Write([]byte("\n]}\n"))
		return err
	}
}
