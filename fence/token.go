package fence

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
)

// EnvToken is the environment variable in which `coordctl lock` hands the token
// to the command it runs.
const EnvToken = "COORD_FENCING_TOKEN"

// MaxToken is the largest token: it fits a signed 64-bit column, such as a
// BIGINT. The cluster never gives out a larger one.
const MaxToken Token = math.MaxInt64

// ErrInvalidToken is returned when a token is zero, larger than [MaxToken], or
// text that is no number. See [TokenError] for which.
var ErrInvalidToken = errors.New("fence: invalid token")

// Token orders the holders of one lock: a later holder has the larger token. It
// is the zxid of the znode by which the lock is held. Zero stands for "no
// token" and is admitted nowhere, so that a forgotten assignment is found at
// its first use.
type Token uint64

// Parse reads a token in the form that [Token.String] writes: decimal digits,
// nothing else. Its error is a *TokenError.
func Parse(s string) (Token, error) {
	v, err := strconv.ParseUint(s, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, &TokenError{Text: s, Reason: reasonTooLarge}
	}
	if err != nil {
		return 0, &TokenError{Text: s, Reason: "want decimal digits"}
	}
	t := Token(v)
	if err := t.Validate(); err != nil {
		return 0, err
	}
	return t, nil
}

// FromEnv returns the token in [EnvToken]. It returns false when the variable is
// not set or holds no token: in both cases the process was not started under a
// lock and must not write as if it were.
func FromEnv() (Token, bool) {
	t, err := Parse(os.Getenv(EnvToken))
	return t, err == nil
}

// String returns the token in decimal, which every database and shell reads.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }

// Validate returns nil, or a *TokenError if t is zero or larger than [MaxToken].
// Stores call it before they compare.
func (t Token) Validate() error {
	switch {
	case t == 0:
		return &TokenError{Text: t.String(), Reason: "zero stands for no token"}
	case t > MaxToken:
		return &TokenError{Text: t.String(), Reason: reasonTooLarge}
	default:
		return nil
	}
}

const reasonTooLarge = "larger than a signed 64-bit number"

// maxQuoted bounds how much foreign text an error repeats, in bytes.
const maxQuoted = 64

// TokenError says what is wrong with a token. It matches [ErrInvalidToken].
type TokenError struct {
	Text   string // the token as it was given
	Reason string // why it is none
}

// Error names the token and the reason.
func (e *TokenError) Error() string {
	text := e.Text
	if len(text) > maxQuoted {
		text = text[:maxQuoted] + "…"
	}
	return fmt.Sprintf("fence: invalid token %q: %s", text, e.Reason)
}

// Is makes errors.Is(err, ErrInvalidToken) true.
func (e *TokenError) Is(target error) bool { return target == ErrInvalidToken }
