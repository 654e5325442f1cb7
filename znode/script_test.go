package znode

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/session"
)

var update = flag.Bool("update", false, "rewrite the expected text in testdata")

// TestScripts runs testdata/*.txt: commands, a line of dashes, what they print,
// an empty line. Lines that begin with # are prose.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := (&script{tester: newTester(t)}).run(string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s: -update would make it\n%s", file, got)
			}
		})
	}
}

type script struct {
	*tester
	out strings.Builder
}

// run returns the script with what the commands really print.
func (s *script) run(text string) string {
	var result strings.Builder
	for _, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(block+"\n", "----\n")
		s.out.Reset()
		ran := false
		for line := range strings.Lines(commands) {
			result.WriteString(strings.TrimRight(line, "\n") + "\n")
			if !strings.HasPrefix(line, "#") {
				ran = true
				s.command(strings.Fields(line))
			}
		}
		if ran {
			result.WriteString("----\n" + s.out.String())
			s.check()
		}
		result.WriteString("\n")
	}
	return strings.TrimRight(result.String(), "\n") + "\n"
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.out, format, args...) }

func (s *script) command(args []string) {
	switch args[0] {
	case "as":
		s.caller = Caller{}
		for _, a := range args[1:] {
			s.identify(a)
		}
	case "wait":
		d, err := time.ParseDuration(args[1])
		if err != nil {
			s.Fatal(err)
		}
		s.tx.Time += d.Milliseconds()
	case "sequence":
		n, _ := strconv.ParseUint(args[2], 10, 64)
		if err := s.tree.SetSequence(args[1], n); err != nil {
			s.printf("%v\n", err)
		}
	case "restore":
		s.tree = s.restored()
	case "end", "expire":
		tx := s.begin()
		tx.Cause = BySessionClose
		s.tree.EndSession(tx, session.ID(s.number(args[1])), args[0] == "expire")
		s.changes()
	case "reap":
		for _, x := range s.tree.Expired(s.tx.Time, 100) {
			if err := s.tree.Reap(s.begin(), x); err != nil {
				s.printf("%v\n", err)
			}
			s.changes()
		}
	case "stat", "get", "ls", "acl", "walk", "ephemerals":
		s.read(args[0], args[1])
	case "multi":
		s.multi(strings.Join(args[1:], " "))
	default:
		r, _ := s.tree.Apply(s.begin(), s.op(args))
		s.result(&r)
		s.changes()
	}
}

func (s *script) multi(text string) {
	var ops []Op
	for part := range strings.SplitSeq(text, ";") {
		ops = append(ops, *s.op(strings.Fields(part)))
	}
	results, err := s.tree.Multi(s.begin(), ops)
	for i := range results {
		s.result(&results[i])
	}
	if err != nil {
		s.printf("%v\n", err)
	}
	s.changes()
}

func (s *script) identify(text string) {
	key, value, _ := strings.Cut(text, "=")
	switch key {
	case "session":
		s.caller.Session = session.ID(s.number(value))
	case "trusted":
		s.caller.Trusted = true
	default:
		s.caller.Identities = append(s.caller.Identities, Identity{Scheme: key, ID: value})
	}
}

func (s *script) number(text string) int64 {
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

// op reads: create|set|delete|check|setacl PATH [DATA] [option=value ...].
func (s *script) op(args []string) *Op {
	kinds := map[string]OpKind{"create": OpCreate, "set": OpSet, "delete": OpDelete, "check": OpCheck, "setacl": OpSetACL}
	kind, ok := kinds[args[0]]
	if !ok {
		s.Fatalf("unknown command %q", args[0])
	}
	op := &Op{Kind: kind, Path: args[1], Version: AnyVersion, ACL: OpenACL}
	for _, a := range args[2:] {
		key, value, hasValue := strings.Cut(a, "=")
		switch key {
		case "seq":
			op.Sequential = true
		case "ephemeral":
			op.Node = Ephemeral
		case "container":
			op.Node = Container
		case "ttl":
			op.TTL = timeIn(value)
			if op.Node == Persistent {
				op.Node = TTL
			}
		case "linger":
			op.Linger = timeIn(value)
		case "v":
			op.Version = s.number(value)
		case "v31":
			op.Version, op.Version31 = s.number(value), true
		case "acl":
			op.ACL = parseACL(value)
		case "empty":
			op.Data = []byte{}
		default:
			if op.Data = []byte(key); hasValue {
				op.Data = []byte(a)
			}
		}
	}
	return op
}

// timeIn reads a duration, or that there shall be none.
func timeIn(value string) time.Duration {
	if value == "none" {
		return Without
	}
	d, _ := time.ParseDuration(value)
	return d
}

// parseACL reads scheme:id:perms, with perms of the letters rwcda, in a list
// with commas.
func parseACL(text string) []ACL {
	list := []ACL{}
	for entry := range strings.SplitSeq(text, ",") {
		if entry == "" {
			continue
		}
		last := strings.LastIndex(entry, ":")
		scheme, id, _ := strings.Cut(entry[:last], ":")
		a := ACL{Scheme: scheme, ID: id}
		for bit, letter := range "rwcda" {
			if strings.ContainsRune(entry[last+1:], letter) {
				a.Perms |= 1 << bit
			}
		}
		list = append(list, a)
	}
	return list
}

func (s *script) result(r *OpResult) {
	if r.Err != nil {
		s.printf("%s: %v\n", r.Path, r.Err)
		if errors.Is(r.Err, ErrRolledBack) {
			return
		}
	} else if r.Kind == OpCreate {
		s.printf("%s\n", r.Path)
	}
}

func (s *script) changes() {
	names := map[ChangeType]string{Created: "created", Deleted: "deleted", DataChanged: "changed", ACLChanged: "acl"}
	for _, c := range s.tx.Changes {
		s.printf("  %v %s %s", c.Zxid, names[c.Type], c.Path)
		if c.Session != 0 {
			s.printf(" by %d", uint64(c.Session))
		}
		s.printf("\n")
	}
}
