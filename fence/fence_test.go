package fence_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/coordd/coord/fence"
)

func TestTokenTextRoundTrips(t *testing.T) {
	for _, token := range []fence.Token{1, 41, 180388633090, fence.MaxToken} {
		got, err := fence.Parse(token.String())
		if err != nil || got != token {
			t.Errorf("Parse(%s) = %s, %v", token, got, err)
		}
	}
	if got := fence.Token(180388633090).String(); got != "180388633090" {
		t.Errorf("String = %s, want decimal", got)
	}
}

func TestParseRefusesWhatIsNoToken(t *testing.T) {
	for _, text := range []string{
		"", "0", "-1", "+1", " 1", "1 ", "0x2a", "1_000", "1.0", "token", "١",
		"9223372036854775808",   // one more than a signed BIGINT holds
		"18446744073709551615",  // the largest uint64
		"184467440737095516150", // more than 64 bits
		strings.Repeat("9", 1<<20),
	} {
		token, err := fence.Parse(text)
		if !errors.Is(err, fence.ErrInvalidToken) || token != 0 {
			t.Errorf("Parse(%.30q) = %s, %v, want ErrInvalidToken", text, token, err)
			continue
		}
		var typed *fence.TokenError
		if !errors.As(err, &typed) || typed.Text != text || len(err.Error()) > 200 {
			t.Errorf("Parse(%.30q): want a short *TokenError that names the text, have %.300v", text, err)
		}
	}
}

func TestTokenFitsASignedColumn(t *testing.T) {
	if int64(fence.MaxToken) != math.MaxInt64 {
		t.Errorf("MaxToken = %s", fence.MaxToken)
	}
	for token, valid := range map[fence.Token]bool{0: false, 1: true, fence.MaxToken: true, fence.MaxToken + 1: false, math.MaxUint64: false} {
		if err := token.Validate(); (err == nil) != valid || err != nil && !errors.Is(err, fence.ErrInvalidToken) {
			t.Errorf("Validate(%s) = %v, want valid %v", token, err, valid)
		}
	}
}

func TestTokenFromEnvironment(t *testing.T) {
	for value, want := range map[string]fence.Token{"34": 34, "": 0, "0": 0, "thirty": 0, "9223372036854775808": 0} {
		t.Setenv(fence.EnvToken, value)
		if got, ok := fence.FromEnv(); got != want || ok != (want != 0) {
			t.Errorf("with %q: %s, %v, want %s", value, got, ok, want)
		}
	}
}

func TestGateRefusesOnlyLowerTokens(t *testing.T) {
	var g fence.Gate // the zero value is ready
	for i, step := range []struct {
		token fence.Token
		seen  fence.Token // 0: admitted
	}{{41, 0}, {41, 0}, {42, 0}, {41, 42}, {42, 0}, {1, 42}, {fence.MaxToken, 0}, {42, fence.MaxToken}} {
		wantVerdict(t, i, g.Admit(t.Context(), "r", step.token), step.token, step.seen)
	}
}

func TestStrictGateRefusesEqualTokensToo(t *testing.T) {
	g := fence.NewGate(fence.Strict())
	for i, step := range []struct {
		token fence.Token
		seen  fence.Token
	}{{41, 0}, {41, 41}, {42, 0}, {41, 42}, {42, 42}, {43, 0}} {
		wantVerdict(t, i, g.Admit(t.Context(), "r", step.token), step.token, step.seen)
	}
}

func wantVerdict(t *testing.T, step int, err error, got, seen fence.Token) {
	t.Helper()
	if seen == 0 {
		if err != nil {
			t.Errorf("step %d: token %s: %v, want it admitted", step, got, err)
		}
		return
	}
	var stale *fence.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, fence.ErrStale) {
		t.Errorf("step %d: token %s: %v, want a *StaleError", step, got, err)
		return
	}
	if stale.Got != got || stale.Seen != seen || stale.Resource != "r" {
		t.Errorf("step %d: %+v, want got %s seen %s", step, stale, got, seen)
	}
	if text := stale.Error(); !strings.Contains(text, got.String()) || !strings.Contains(text, `"r"`) {
		t.Errorf("step %d: %q names not what was refused", step, text)
	}
}

func TestMarksBelongToResourceAndLock(t *testing.T) {
	g := fence.NewGate()
	left, right := g.ForLock("/locks/left"), g.ForLock("/locks/right")
	admit := func(s fence.Store, resource string, token fence.Token) error {
		return s.Admit(t.Context(), resource, token)
	}
	for _, err := range []error{
		admit(left, "r", 900), admit(right, "r", 5), admit(g, "r", 3),
		admit(left, "other", 1), admit(g.ForLock(""), "r", 3),
	} {
		if err != nil {
			t.Errorf("a mark of another resource or lock was compared: %v", err)
		}
	}
	err := admit(left, "r", 899)
	var stale *fence.StaleError
	if !errors.As(err, &stale) || stale.Lock != "/locks/left" || stale.Seen != 900 {
		t.Errorf("have %v, want it refused under /locks/left", err)
	}
	if err := admit(g, "r", 2); !errors.Is(err, fence.ErrStale) {
		t.Errorf("have %v, want it refused by the mark without a lock", err)
	}
}

func TestRefusedAdmissionLeavesTheMark(t *testing.T) {
	g := fence.NewGate()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range []error{
		g.Admit(t.Context(), "r", 0),
		g.Admit(t.Context(), "r", fence.MaxToken+1),
		g.Admit(t.Context(), "", 7),
		g.Admit(t.Context(), "a\x00b", 7),
		g.Admit(t.Context(), "\xff", 7),
		g.Admit(t.Context(), strings.Repeat("r", fence.MaxNameBytes+1), 7),
		g.ForLock("\xff").Admit(t.Context(), "r", 7),
		g.Admit(done, "r", 7),
	} {
		if !errors.Is(err, fence.ErrInvalidToken) && !errors.Is(err, fence.ErrInvalidResource) && !errors.Is(err, context.Canceled) {
			t.Errorf("have %v, want a typed refusal", err)
		}
	}
	if err := g.Admit(t.Context(), "r", 1); err != nil {
		t.Errorf("a refused admission raised the mark: %v", err)
	}
	if err := g.Admit(t.Context(), strings.Repeat("r", fence.MaxNameBytes), 1); err != nil {
		t.Errorf("the longest name: %v", err)
	}
}

// TestConcurrentAdmissionsNeverGoBack has many goroutines admit all tokens and
// checks, from inside the order of admissions, that none was below an earlier.
func TestConcurrentAdmissionsNeverGoBack(t *testing.T) {
	const workers, tokens = 8, 2000
	g := fence.NewGate(fence.Strict())
	var admitted [tokens + 1]int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			highest := fence.Token(0)
			for token := fence.Token(1); token <= tokens; token++ {
				err := g.Admit(context.Background(), "r", token)
				if err == nil {
					mu.Lock()
					admitted[token]++
					mu.Unlock()
					highest = token
					continue
				}
				var stale *fence.StaleError
				if !errors.As(err, &stale) || stale.Seen < token || stale.Seen < highest {
					t.Errorf("token %s after own %s: %v", token, highest, err)
				}
			}
		})
	}
	wg.Wait()
	for token, n := range admitted {
		if n > 1 {
			t.Errorf("token %d was admitted %d times in strict mode", token, n)
		}
	}
	if admitted[tokens] != 1 {
		t.Error("the last token was admitted by nobody")
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "0", "1", "41", "9223372036854775807", "9223372036854775808", "-1", "0x1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := fence.Parse(text)
		if err != nil {
			if !errors.Is(err, fence.ErrInvalidToken) {
				t.Fatalf("Parse(%q): untyped error %v", text, err)
			}
			return
		}
		if token.Validate() != nil || strings.TrimLeft(text, "0") != token.String() {
			t.Fatalf("Parse(%q) = %s", text, token)
		}
	})
}
