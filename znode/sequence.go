package znode

import (
	"fmt"
	"math"
	"strings"
)

// SequenceOf returns the number that a name ends in, if it is written as a
// sequential create writes it: ten digits or more. Names with fewer, or with a
// number over 64 bits, have none.
//
// Children with such names stand in a queue, whatever comes before the number;
// see [Tree.Predecessor].
func SequenceOf(name string) (number uint64, ok bool) {
	at, scale := len(name), uint64(1)
	for at > 0 && len(name)-at < safeDigits {
		d := uint64(name[at-1] - '0')
		if d > 9 {
			return number, len(name)-at >= sequenceDigits
		}
		number += d * scale
		scale *= 10
		at--
	}
	if at == 0 {
		return number, len(name) >= sequenceDigits
	}
	return longSequence(name[:at], number, scale)
}

// safeDigits is how many digits are sure to fit 64 bits.
const safeDigits = 19

// longSequence goes on in front of the last digits, which make number: one more
// digit may be there if it fits, and zeros.
func longSequence(head string, number, scale uint64) (uint64, bool) {
	for at := len(head); at > 0; at-- {
		d := uint64(head[at-1] - '0')
		switch {
		case d > 9:
			return number, true
		case d == 0:
		case at < len(head) || d > 1 || number > math.MaxUint64-scale:
			return 0, false
		default:
			number += scale
		}
	}
	return number, true
}

// precedes is the order of a queue: by number, then by name.
func precedes(number uint64, name string, other uint64, otherName string) bool {
	return number < other || number == other && name < otherName
}

// Predecessor returns who stands right before one child of the node at path in
// the queue of its children: those whose names end in a number ([SequenceOf]),
// in the order of the numbers, and of the names where numbers are equal. Names
// alone do not sort like that: what comes before the number differs, and numbers
// past ten digits are longer. With containing only names that contain that text
// count as before: of a queue in which readers pass each other, the last writer
// is found. Before is "" if there is none; ahead is how many are before, whatever
// they are called, and st is the child's own Stat.
//
// It asks for READ on the node at path. It looks at every child and keeps nothing.
// The error is [ErrNoNode] if the node or the child is not there, [ErrNoAuth],
// or [ErrBadArguments] if the child's name ends in no number.
func (t *Tree) Predecessor(path, child, containing string, c *Caller) (before string, ahead int, st Stat, err error) {
	own, ok := SequenceOf(child)
	if !ok {
		return "", 0, Stat{}, fmt.Errorf("%q ends in no sequence number: %w", child, ErrBadArguments)
	}
	parent, err := t.readable(path, PermRead, c)
	if err != nil {
		return "", 0, Stat{}, err
	}
	i := t.index.find(&t.nodes, t.find(path), child)
	if i == 0 {
		return "", 0, Stat{}, ErrNoNode
	}
	var nearest uint64
	t.children(parent).each(func(k uint32) bool {
		name := t.nodes.at(k).name()
		number, ok := SequenceOf(name)
		if !ok || !precedes(number, name, own, child) {
			return true
		}
		ahead++
		if (before == "" || precedes(nearest, before, number, name)) && strings.Contains(name, containing) {
			before, nearest = name, number
		}
		return true
	})
	return before, ahead, t.stat(t.nodes.at(i)), nil
}
