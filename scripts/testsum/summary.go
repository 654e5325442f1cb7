package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is a line of `go test -json`.
type event struct {
	Action     string
	Package    string
	ImportPath string // in place of Package in what the compiler says
	Test       string
	Output     string
	Elapsed    float64 // seconds
}

// The actions that scripts/test.sh adds to those of the go command.
const (
	// actionPhase begins a part of the run, named by Package. With Output
	// "short" its skips are not counted against a strict run: tests leave
	// themselves out there on purpose, and run in another phase.
	actionPhase = "phase"
	// actionPhaseFailed says that the command of the phase exited with an error.
	actionPhaseFailed = "phase-failed"
)

// key names a test, or with an empty test a package.
type key struct{ pkg, test string }

type counts struct{ passed, failed, skipped int }

func (c *counts) add(o counts) {
	c.passed += o.passed
	c.failed += o.failed
	c.skipped += o.skipped
}

// summary takes events in and prints as it goes.
type summary struct {
	out io.Writer

	phase     string
	short     bool
	inPhase   counts
	total     counts
	ownFailed map[string]int      // failures counted for a package so far
	packages  map[string]counts   // tests of packages that still run
	output    map[key][]string    // of tests and packages that still run
	skips     map[string][]string // by reason, those that count in a strict run
	failures  []failure
}

// failure is what the end of the run says once more of something that failed: what
// is above it has scrolled away, or was cut out of a log.
type failure struct {
	name string
	said []string
}

// The end says of each failure no more than this.
const (
	repeatedLines = 6
	repeatedBytes = 300 // of a line
)

func newSummary(out io.Writer) *summary {
	return &summary{
		out:       out,
		ownFailed: make(map[string]int),
		packages:  make(map[string]counts),
		output:    make(map[key][]string),
		skips:     make(map[string][]string),
	}
}

func (s *summary) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

func (s *summary) plain(line []byte) { s.printf("%s", line) }

func (s *summary) add(e event) {
	switch e.Action {
	case actionPhase:
		s.begin(e)
	case actionPhaseFailed:
		s.phaseFailed(e)
	case "output":
		k := key{e.Package, e.Test}
		s.output[k] = append(s.output[k], e.Output)
	case "build-output":
		s.printf("%s", e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.packageEnded(e)
		} else {
			s.testEnded(e)
		}
	}
}

func (s *summary) begin(e event) {
	s.endPhase()
	s.phase, s.short, s.inPhase = e.Package, e.Output == "short", counts{}
	s.printf("== %s\n", e.Package)
}

// endPhase reports tests that began and never ended: their process died.
func (s *summary) endPhase() {
	for _, k := range slices.SortedFunc(maps.Keys(s.output), func(a, b key) int { return strings.Compare(a.pkg+a.test, b.pkg+b.test) }) {
		for _, line := range s.output[k] {
			s.printf("%s", line)
		}
	}
	clear(s.output)
	clear(s.packages)
	clear(s.ownFailed)
}

// phaseFailed counts a failure of the phase itself if no test of it explains
// the exit code.
func (s *summary) phaseFailed(e event) {
	if s.inPhase.failed > 0 {
		return
	}
	s.failed(e.Package, "the command failed")
	s.count(e.Package, counts{failed: 1})
}

// failed prints that something failed and what it said, and keeps it for the end.
func (s *summary) failed(name, remark string, output ...string) {
	s.printf("FAIL %s: %s\n", name, remark)
	f := failure{name: name}
	for _, line := range output {
		if chatter(line) {
			continue
		}
		s.printf("    %s", line)
		if text := strings.TrimSpace(line); text != "" && len(f.said) < repeatedLines {
			f.said = append(f.said, text[:min(len(text), repeatedBytes)])
		}
	}
	s.failures = append(s.failures, f)
}

func (s *summary) count(pkg string, c counts) {
	s.inPhase.add(c)
	s.total.add(c)
	own := s.packages[pkg]
	own.add(c)
	s.packages[pkg] = own
}

func (s *summary) testEnded(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "pass":
		s.count(e.Package, counts{passed: 1})
	case "skip":
		s.count(e.Package, counts{skipped: 1})
		reason := skipReason(s.output[k])
		s.printf("skip %s %s: %s\n", e.Package, e.Test, reason)
		if !s.short {
			s.skips[reason] = append(s.skips[reason], e.Test)
		}
	case "fail":
		s.count(e.Package, counts{failed: 1})
		s.ownFailed[e.Package]++
		s.failed(e.Package+" "+e.Test, fmt.Sprintf("%.1f s", e.Elapsed), s.output[k]...)
	}
	delete(s.output, k)
}

func (s *summary) packageEnded(e event) {
	k := key{e.Package, ""}
	if e.Action == "fail" && s.ownFailed[e.Package] == 0 {
		// It does not build, its TestMain failed, or it died: no test tells.
		s.count(e.Package, counts{failed: 1})
		s.failed(e.Package, "no test tells why", s.take(e.Package)...)
	}
	c := s.packages[e.Package]
	if c != (counts{}) || e.Action == "fail" {
		s.printf("%-4s %-50s %6.1fs  %s\n", e.Action, e.Package, e.Elapsed, c)
	}
	delete(s.output, k)
	delete(s.packages, e.Package)
	delete(s.ownFailed, e.Package)
}

// take returns all that is kept of the output of a package, in a stable order,
// and forgets it.
func (s *summary) take(pkg string) []string {
	var lines []string
	for _, k := range slices.SortedFunc(maps.Keys(s.output), func(a, b key) int { return strings.Compare(a.test, b.test) }) {
		if k.pkg == pkg {
			lines = append(lines, s.output[k]...)
			delete(s.output, k)
		}
	}
	return lines
}

// close prints the end and tells whether the run was good.
func (s *summary) close(strict bool) bool {
	s.endPhase()
	good := s.total.failed == 0
	if strict && len(s.skips) > 0 {
		good = false
		s.printf("\nSkipped tests are failures here:\n")
	} else if len(s.skips) > 0 {
		s.printf("\nSkipped:\n")
	}
	for _, reason := range slices.Sorted(maps.Keys(s.skips)) {
		s.printf("  %s\n    %s\n", reason, strings.Join(s.skips[reason], ", "))
	}
	if len(s.failures) > 0 {
		s.printf("\nFailed:\n")
	}
	for _, f := range s.failures {
		s.printf("  %s\n", f.name)
		for _, line := range f.said {
			s.printf("    %s\n", line)
		}
	}
	if s.total == (counts{}) {
		good = false
		s.printf("no test ran\n")
	}
	s.printf("%s\n", s.total)
	return good
}

// String is the closing line.
func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

// chatter tells whether a line of output is the test runner's own.
func chatter(line string) bool {
	line = strings.TrimLeft(line, " ")
	for _, prefix := range []string{"=== ", "--- PASS", "--- FAIL", "--- SKIP"} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// skipReason returns what the test said.
func skipReason(output []string) string {
	var said []string
	for _, line := range output {
		if text := strings.TrimSpace(line); !chatter(line) && text != "" {
			said = append(said, text)
		}
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}
