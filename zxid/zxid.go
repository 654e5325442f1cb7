// Package zxid has the transaction id of coordd: a leader epoch and a counter
// in one 64-bit number, as in Zab (ZooKeeper). It is pure data; every function
// may be called from any goroutine.
package zxid

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxEpoch is the largest epoch: a zxid stays positive as a signed 64-bit
// number, so that it fits a BIGINT column and the ZooKeeper wire.
const MaxEpoch = 1<<31 - 1

// ID numbers a transaction: epoch<<32 | counter. IDs are compared with < and
// >; a later transaction has the larger one, across leaders, restarts,
// overflows and restores. The zero ID stands for "before every transaction".
type ID uint64

// Make puts an id together.
func Make(epoch, counter uint32) ID { return ID(epoch)<<32 | ID(counter) }

// Epoch is the number of the leadership the transaction belongs to.
func (z ID) Epoch() uint32 { return uint32(z >> 32) }

// Counter is the position of the transaction within its epoch, from 1.
func (z ID) Counter() uint32 { return uint32(z) }

// Next returns the id of the following transaction. A counter that would
// overflow opens the next epoch by itself at counter 1: ZooKeeper forces an
// election there (ZOOKEEPER-1277), which stops writes for no reason.
func (z ID) Next() ID {
	if z.Counter() == 1<<32-1 {
		return Make(z.Epoch()+1, 1)
	}
	return z + 1
}

// String prints the id in hexadecimal, as ZooKeeper's tools do.
func (z ID) String() string { return "0x" + strconv.FormatUint(uint64(z), 16) }

// ErrSyntax is returned for text that is not an id.
var ErrSyntax = errors.New("want a zxid such as 0x2a00001f3c or 180388634428")

// Parse reads an id in hexadecimal with the prefix 0x, or in decimal (the
// form of a fencing token). The error is ErrSyntax with the text, also for a
// number that is not positive with 64 bits.
func Parse(s string) (ID, error) {
	base, digits := 10, s
	if hex, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok {
		base, digits = 16, hex
	}
	v, err := strconv.ParseUint(digits, base, 63)
	if err != nil {
		return 0, fmt.Errorf("%.40q: %w", s, ErrSyntax)
	}
	return ID(v), nil
}
