package sqlfence

import "errors"

// Verdict is what an error of the database means for the transaction in which
// it occurred. See [Classify].
type Verdict int

const (
	// Unclear is the verdict on an error that nothing is known of. The
	// transaction is not begun again, and if the error came from its commit the
	// outcome is unknown. The zero Verdict.
	Unclear Verdict = iota
	// Repeatable means that nothing of the transaction will stay, and that it may
	// succeed if it begins again: it could not be put in order with another one,
	// met a deadlock, or waited too long for a lock.
	Repeatable
	// Refused is the database's own word that nothing of the transaction will
	// stay, and that it would be the same at another try.
	Refused
	// Canceled is how the end of a context looks that interrupts a statement.
	Canceled
)

// String returns the name of the verdict.
func (v Verdict) String() string {
	switch v {
	case Unclear:
		return "unclear"
	case Repeatable:
		return "repeatable"
	case Refused:
		return "refused"
	case Canceled:
		return "canceled"
	default:
		return "invalid verdict"
	}
}

// verdict asks the caller's function before the dialect.
func (c *config) verdict(err error) Verdict {
	if errors.Is(err, errForgotten) {
		return Repeatable
	}
	if c.classify != nil {
		if v := c.classify(err); v != Unclear {
			return v
		}
	}
	return c.dialect.verdict(err)
}
