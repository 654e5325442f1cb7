package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// purePackages have no network, file, goroutine, lock, logger, clock or
// randomness: what they do depends on their arguments alone.
var purePackages = []string{"zxid", "znode", "session", "watch", "wire"}

// impureImports are the packages by which code would reach any of these. What is
// in sync/atomic is no lock: a copy may be read elsewhere.
var impureImports = []string{
	"crypto/rand", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http",
	"os", "os/exec", "os/signal", "runtime/debug", "sync", "syscall", "context",
}

// clockCalls are the functions of package time that read the clock or wait.
var clockCalls = []string{
	"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer",
}

// The state machine may lock and start goroutines, but has no clock and no dice.
var deterministicPackages = append([]string{"fsm"}, purePackages...)

var diceImports = []string{"crypto/rand", "math/rand", "math/rand/v2"}

func TestPurePackagesReachNothingOutside(t *testing.T) {
	for _, p := range listPackages(t) {
		if !slices.ContainsFunc(purePackages, func(name string) bool { return within(p.own(), name) }) {
			continue
		}
		for _, imported := range p.Imports {
			if slices.Contains(impureImports, imported) {
				t.Errorf("%s imports %s", p.own(), imported)
			}
		}
		eachFile(t, p, func(fset *token.FileSet, file *ast.File) {
			ast.Inspect(file, func(n ast.Node) bool {
				if goStatement, ok := n.(*ast.GoStmt); ok {
					t.Errorf("%s: a goroutine in a pure package", fset.Position(goStatement.Pos()))
				}
				return true
			})
		})
	}
}

func TestDeterministicPackagesHaveNoClockAndNoDice(t *testing.T) {
	for _, p := range listPackages(t) {
		if !slices.Contains(deterministicPackages, p.own()) {
			continue
		}
		for _, imported := range p.Imports {
			if slices.Contains(diceImports, imported) {
				t.Errorf("%s imports %s", p.own(), imported)
			}
		}
		eachFile(t, p, func(fset *token.FileSet, file *ast.File) {
			for _, position := range clockUses(fset, file) {
				t.Errorf("%s: reads the clock: time comes in as an argument", position)
			}
		})
	}
}

// In the state machine's package, only one file knows the Raft library.
func TestOnlyOneFileOfTheStateMachineKnowsRaft(t *testing.T) {
	for _, p := range listPackages(t) {
		if p.own() != "fsm" {
			continue
		}
		eachFile(t, p, func(fset *token.FileSet, file *ast.File) {
			name := filepath.Base(fset.Position(file.Pos()).Filename)
			for _, spec := range file.Imports {
				if imported, err := strconv.Unquote(spec.Path.Value); err == nil && imported == "github.com/hashicorp/raft" && name != "raft.go" {
					t.Errorf("fsm/%s imports %s, only raft.go may", name, imported)
				}
			}
		})
	}
}

func eachFile(t *testing.T, p goPackage, visit func(*token.FileSet, *ast.File)) {
	t.Helper()
	for _, name := range p.GoFiles {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		visit(fset, file)
	}
}

// clockUses returns where a file uses the clock of package time.
func clockUses(fset *token.FileSet, file *ast.File) []token.Position {
	name := importName(file, "time")
	if name == "" {
		return nil
	}
	var found []token.Position
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && x.Name == name && slices.Contains(clockCalls, selector.Sel.Name) {
			found = append(found, fset.Position(selector.Pos()))
		}
		return true
	})
	return found
}

// importName returns the name by which the file knows the package, or "".
func importName(file *ast.File, path string) string {
	for _, spec := range file.Imports {
		if imported, err := strconv.Unquote(spec.Path.Value); err != nil || imported != path {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return filepath.Base(path)
	}
	return ""
}

func TestClockIsFoundUnderAnyName(t *testing.T) {
	const source = `package p
import t "time"
func f() (t.Duration, t.Time) { return t.Second, t.Now() }
func g() { <-t.After(1) }`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if found := clockUses(fset, file); len(found) != 2 {
		t.Errorf("found %v, want two uses", found)
	}
}
