package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/coordd/coord/internal/zkimport"
)

// importItem is what import prints for scripts.
type importItem struct {
	Source []string `json:"source"`
	Path   string   `json:"path"`
	Under  string   `json:"under"`
	DryRun bool     `json:"dryRun"`
	// Znodes are those of the source that are to be in the cluster; the next five
	// are what was done, or with dryRun would be.
	Znodes      int      `json:"znodes"`
	Copied      int      `json:"copied"`
	Present     int      `json:"present"` // there already, and the same
	Overwritten int      `json:"overwritten"`
	Counters    int      `json:"counters"` // raised, beyond what the creates do
	Quotas      int      `json:"quotas"`
	DataBytes   string   `json:"dataBytes"` // of the copied
	ACLLists    int      `json:"aclLists"`
	Parents     []string `json:"parents"` // created above the subtree
	Ephemerals  []string `json:"ephemerals"`

	Refused   []faultItem    `json:"refused"`
	Conflicts []conflictItem `json:"conflicts"`
	// Changed are znodes that changed in the ensemble while they were copied.
	Changed []string `json:"changed"`
	Notes   []string `json:"notes"`

	bytes   int64
	started bool // something was written
}

// faultItem is a znode that cannot be copied.
type faultItem struct {
	Path   string `json:"path"`
	Kind   string `json:"kind"`
	Limit  string `json:"limit,omitempty"`
	Reason string `json:"reason"`
}

// conflictItem is a znode that is there and differs.
type conflictItem struct {
	Path string   `json:"path"`
	What []string `json:"what"`
}

func newImportItem(o *importOptions) *importItem {
	return &importItem{
		Source: o.hosts, Path: o.path, Under: o.under, DryRun: o.dryRun, Parents: []string{}, Ephemerals: []string{},
		Refused: []faultItem{}, Conflicts: []conflictItem{}, Changed: []string{}, Notes: []string{}, DataBytes: "0",
	}
}

// plan notes what is to be done.
func (i *importItem) plan(v *zkimport.Survey, p *zkimport.Plan) {
	i.Znodes, i.ACLLists = v.Znodes(), v.ACLs()
	i.Ephemerals = append(i.Ephemerals, v.Ephemerals...)
	i.Copied, i.Present, i.Overwritten, i.Counters, i.Quotas = p.Create, p.Present, p.Overwrite, p.Counters, p.Quotas
	i.bytes, i.DataBytes = p.Bytes, strconv.FormatInt(p.Bytes, 10)
	i.Parents = append(i.Parents, p.Parents...)
	i.Notes = append(i.Notes, p.Notes...)
	for _, f := range p.Faults {
		i.Refused = append(i.Refused, faultItem{f.Path, string(f.Kind), f.Limit, f.Reason})
	}
	for _, c := range p.Conflicts {
		i.Conflicts = append(i.Conflicts, conflictItem(c))
	}
	if !i.DryRun && !p.Ready() {
		i.Copied, i.Overwritten, i.Counters, i.Quotas, i.Parents = 0, 0, 0, 0, []string{}
		i.bytes, i.DataBytes = 0, "0"
	}
}

// done notes what was done.
func (i *importItem) done(r *zkimport.Result) {
	i.started = true
	i.Copied, i.Overwritten, i.Counters, i.Quotas = r.Created, r.Overwritten, r.Counters, r.Quotas
	i.bytes, i.DataBytes = r.Bytes, strconv.FormatInt(r.Bytes, 10)
	i.Changed = append(i.Changed, r.Changed...)
}

// maxNamed bounds the paths that are printed for people; --output wide and JSON
// have them all.
const maxNamed = 20

func (e *env) printImport(i *importItem) error {
	return e.object("Import", i, func(w io.Writer) error {
		verb, refuse := "copied", "refused"
		if i.DryRun {
			verb, refuse = "would copy", "would refuse"
		}
		most := maxNamed
		if e.output == "wide" {
			most = len(i.Ephemerals) + len(i.Refused) + len(i.Conflicts) + len(i.Changed)
		}
		l := labels{w: w, most: most}
		if i.DryRun || i.started {
			l.line(verb, fmt.Sprintf("%s, %s, %s, %s, %s", plural(i.Copied, "znode"), size(i.bytes),
				plural(i.ACLLists, "ACL list"), plural(i.Counters, "sequence counter"), plural(i.Quotas, "quota")))
		}
		l.some("already there", i.Present, "the same")
		l.some("overwritten", i.Overwritten, "differed")
		skipped := plural(len(i.Ephemerals), "ephemeral znode")
		if i.Path == "/" {
			skipped += ", /zookeeper"
		}
		if len(i.Ephemerals) > 0 || i.Path == "/" {
			l.line("skipped", skipped)
		}
		for k, p := range i.Ephemerals {
			l.nth("", k, len(i.Ephemerals), short(p))
		}
		for k, f := range i.Refused {
			l.nth(refuse, k, len(i.Refused), short(f.Path)+": "+f.Reason)
		}
		for k, c := range i.Conflicts {
			l.nth("differs", k, len(i.Conflicts), short(c.Path)+": "+strings.Join(c.What, ", "))
		}
		for k, p := range i.Changed {
			l.nth("changed there", k, len(i.Changed), short(p))
		}
		if len(i.Changed) > 0 {
			l.line("note", "the ensemble was written to meanwhile; `coordctl import verify zookeeper` compares")
		}
		for _, n := range i.Notes {
			l.line("note", n)
		}
		return l.err
	})
}

// labels prints lines that begin with what they are about.
type labels struct {
	w    io.Writer
	most int // of one kind
	err  error
}

func (l *labels) line(label, text string) {
	if l.err == nil {
		_, l.err = fmt.Fprintf(l.w, "%-14s %s\n", label, oneLine(text))
	}
}

func (l *labels) some(label string, n int, what string) {
	if n > 0 {
		l.line(label, plural(n, "znode")+", "+what)
	}
}

// short keeps a path from filling the screen.
func short(path string) string {
	const head, end = 120, 40
	if runes := []rune(path); len(runes) > head+end {
		return string(runes[:head]) + "…" + string(runes[len(runes)-end:])
	}
	return path
}

// nth prints one of several, and how many are left out in place of the first that is.
func (l *labels) nth(label string, k, n int, text string) {
	switch {
	case k < l.most:
		l.line(label, text)
	case k == l.most:
		l.line(label, fmt.Sprintf("and %d more (--output wide lists them)", n-k))
	}
}
