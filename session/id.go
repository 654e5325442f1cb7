package session

import (
	"fmt"
	"strconv"
)

// ID names a session for ever: it is the zxid of the transaction that opened
// it, so it is unique, never zero and positive as a signed number. The zero ID
// means "no session".
type ID uint64

// String prints the id as ZooKeeper's tools do, in 16 hexadecimal digits.
func (id ID) String() string { return fmt.Sprintf("0x%016x", uint64(id)) }

// ParseID reads what String prints; the prefix and leading zeros may be left out.
func ParseID(s string) (ID, error) {
	digits := s
	if len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X') {
		digits = s[2:]
	}
	v, err := strconv.ParseUint(digits, 16, 63)
	if err != nil {
		return 0, fmt.Errorf("session id %q: want up to 16 hexadecimal digits, as in 0x2a00001f3c", s)
	}
	return ID(v), nil
}

// Identity is something a client has proved about itself: a digest user, an
// address, a certificate subject. The scheme says which.
type Identity struct{ Scheme, ID string }
