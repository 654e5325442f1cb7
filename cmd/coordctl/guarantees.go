package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/docs"
)

func newGuaranteesCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "guarantees [WORD]",
		Short: "Print what is promised, what that assumes, and the tests that show it",
		Long: `Print what the cluster and its client promise, what each promise assumes beside a
majority of healthy servers, and the tests that show it. With WORD only what has
that word in it (exit code 3 if there is none).`,
		Example: "  coordctl guarantees\n" +
			"  coordctl guarantees token",
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return e.guarantees(strings.ToLower(strings.Join(args, "")))
		},
	}
}

// guarantee is one promise as scripts see it.
type guarantee struct {
	Section string   `json:"section"`
	Promise string   `json:"promise"`
	Assumes string   `json:"assumes,omitempty"`
	ShownBy []string `json:"shownBy"`
}

func (e *env) guarantees(word string) error {
	var found []guarantee
	for _, g := range parseGuarantees(docs.Guarantees) {
		if strings.Contains(strings.ToLower(g.Section+" "+g.Promise+" "+g.Assumes), word) {
			found = append(found, g)
		}
	}
	if len(found) == 0 {
		return &codedError{exitNotFound, fmt.Errorf("no promise has the word %q in it", word)}
	}
	if e.isJSON() {
		l := e.newLister("Guarantee", nil, nil)
		for _, g := range found {
			if err := l.add(g); err != nil {
				return err
			}
		}
		return l.close()
	}
	return printGuarantees(e.stdout, found)
}

// parseGuarantees reads the rows of the tables, which have three columns.
func parseGuarantees(page string) []guarantee {
	var out []guarantee
	section := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) != 3 || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[0]) == "promise" {
			continue
		}
		g := guarantee{Section: section, Promise: plainText(cells[0]), Assumes: plainText(cells[1]), ShownBy: []string{}}
		for _, test := range strings.Split(cells[2], ",") {
			if test = plainText(test); test != "" {
				g.ShownBy = append(g.ShownBy, test)
			}
		}
		out = append(out, g)
	}
	return out
}

// plainText is a cell without its marks.
func plainText(cell string) string {
	return strings.TrimSpace(strings.NewReplacer("**", "", "`", "").Replace(cell))
}

// guaranteeWidth is where lines end.
const guaranteeWidth = 100

func printGuarantees(w io.Writer, all []guarantee) error {
	var b strings.Builder
	section := ""
	for _, g := range all {
		if g.Section != section {
			section = g.Section
			fmt.Fprintf(&b, "%s\n\n", strings.ToUpper(section))
		}
		b.WriteString(wrapped("  ", g.Promise))
		if g.Assumes != "" {
			b.WriteString(wrapped("    assumes   ", g.Assumes))
		}
		b.WriteString(wrapped("    shown by  ", strings.Join(g.ShownBy, " ")) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wrapped breaks text into lines, the first behind head and the others as far in.
func wrapped(head, text string) string {
	var b strings.Builder
	line := head
	for _, word := range strings.Fields(text) {
		if len(line) > len(head) && len(line)+len(word) >= guaranteeWidth {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = strings.Repeat(" ", len(head))
		}
		line += word + " "
	}
	return b.String() + strings.TrimRight(line, " ") + "\n"
}
