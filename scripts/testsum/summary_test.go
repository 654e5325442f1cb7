package main

import (
	"strings"
	"testing"
)

// exit runs the program on the events and returns its exit code and output.
func exit(t *testing.T, events string, args ...string) (int, string) {
	t.Helper()
	var out, problems strings.Builder
	code := run(args, strings.NewReader(events), &out, &problems)
	if problems.Len() > 0 {
		t.Logf("stderr: %s", problems.String())
	}
	return code, out.String()
}

const (
	passes = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"noise of a good test\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0.1}
{"Action":"pass","Package":"p","Elapsed":1.5}
`
	fails = `{"Action":"output","Package":"q","Test":"TestB","Output":"--- FAIL: TestB (0.00s)\n"}
{"Action":"output","Package":"q","Test":"TestB","Output":"    b_test.go:7: what went wrong\n"}
{"Action":"fail","Package":"q","Test":"TestB","Elapsed":0}
{"Action":"output","Package":"q","Output":"FAIL\n"}
{"Action":"fail","Package":"q","Elapsed":0.2}
`
	skips = `{"Action":"output","Package":"r","Test":"TestC","Output":"=== RUN   TestC\n"}
{"Action":"output","Package":"r","Test":"TestC","Output":"    c_test.go:9: needs a moon\n"}
{"Action":"output","Package":"r","Test":"TestC","Output":"--- SKIP: TestC (0.00s)\n"}
{"Action":"skip","Package":"r","Test":"TestC"}
{"Action":"pass","Package":"r"}
`
)

func wantEnd(t *testing.T, out, end string) {
	t.Helper()
	if !strings.HasSuffix(out, "\n"+end+"\n") {
		t.Errorf("the output must end in the line %q:\n%s", end, out)
	}
}

func TestGoodRun(t *testing.T) {
	code, out := exit(t, "go: downloading something\n"+passes, "-strict")
	wantEnd(t, out, "1 passed, 0 failed, 0 skipped")
	if code != 0 || strings.Contains(out, "noise") || !strings.Contains(out, "go: downloading") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

func TestFailureIsShownAndCountedOnce(t *testing.T) {
	code, out := exit(t, passes+fails+`{"Action":"phase-failed","Package":"unit"}`+"\n")
	wantEnd(t, out, "1 passed, 1 failed, 0 skipped")
	if code != 1 || !strings.Contains(out, "what went wrong") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

func TestEndRepeatsWhatFailed(t *testing.T) {
	long := `{"Action":"output","Package":"q","Test":"TestB","Output":"` + strings.Repeat("x", 1000) + `\n"}` + "\n"
	_, out := exit(t, strings.Repeat(long, 10)+fails+passes+strings.ReplaceAll(passes, "TestA", "TestZ"))
	_, end, found := strings.Cut(out, "\nFailed:\n  q TestB\n")
	if !found || strings.Count(end, "x") != repeatedLines*repeatedBytes {
		t.Errorf("the end must name what failed and begin to tell why:\n%s", out)
	}
	if _, out := exit(t, passes); strings.Contains(out, "Failed:") {
		t.Errorf("nothing failed:\n%s", out)
	}
}

func TestSkipFailsAStrictRunAndSaysWhy(t *testing.T) {
	for args, want := range map[string]int{"-strict": 1, "-strict=false": 0} {
		code, out := exit(t, passes+skips, args)
		wantEnd(t, out, "1 passed, 0 failed, 1 skipped")
		if code != want || !strings.Contains(out, "c_test.go:9: needs a moon") {
			t.Errorf("%s: exit %d, want %d:\n%s", args, code, want, out)
		}
	}
}

func TestSkipInAShortPhaseIsNoFailure(t *testing.T) {
	short := `{"Action":"phase","Package":"race","Output":"short"}` + "\n"
	if code, out := exit(t, passes+short+skips, "-strict"); code != 0 || !strings.Contains(out, "1 skipped") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	full := `{"Action":"phase","Package":"unit"}` + "\n"
	if code, out := exit(t, short+skips+full+skips, "-strict"); code != 1 {
		t.Errorf("exit %d, the second phase is not short:\n%s", code, out)
	}
}

func TestPackageWithoutAFailingTestIsAFailure(t *testing.T) {
	for name, events := range map[string]string{
		"does not build": `{"Action":"build-output","ImportPath":"q","Output":"q.go:1: syntax error\n"}
{"Action":"build-fail","ImportPath":"q"}
{"Action":"fail","Package":"q"}
`,
		"died": `{"Action":"run","Package":"q","Test":"TestB"}
{"Action":"output","Package":"q","Test":"TestB","Output":"q.go:1: syntax error\n"}
{"Action":"output","Package":"q","Output":"exit status 2\n"}
{"Action":"fail","Package":"q"}
`,
	} {
		code, out := exit(t, passes+events)
		wantEnd(t, out, "1 passed, 1 failed, 0 skipped")
		if code != 1 || !strings.Contains(out, "q.go:1: syntax error") {
			t.Errorf("%s: exit %d:\n%s", name, code, out)
		}
	}
}

func TestCommandThatFailsWithoutEventsIsAFailure(t *testing.T) {
	events := `{"Action":"phase","Package":"unit"}` + "\n" + passes +
		`{"Action":"phase","Package":"whole"}` + "\n" + `{"Action":"phase-failed","Package":"whole"}` + "\n"
	code, out := exit(t, events)
	wantEnd(t, out, "1 passed, 1 failed, 0 skipped")
	if code != 1 || !strings.Contains(out, "FAIL whole") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

func TestRunWithoutTestsIsAFailure(t *testing.T) {
	if code, out := exit(t, ""); code != 1 {
		t.Errorf("exit %d:\n%s", code, out)
	}
}

func TestUnknownFlagIsAUsageError(t *testing.T) {
	if code, _ := exit(t, "", "-no-such-flag"); code != 2 {
		t.Errorf("exit %d, want 2", code)
	}
}
