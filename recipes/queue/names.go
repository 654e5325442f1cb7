package queue

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/coordd/coord/znode"
)

// Names below the queue's path.
const (
	itemsFolder  = "items"     // the items
	claimsFolder = "claims"    // in items: who works on which, and which are held back for a time
	keysFolder   = "keys"      // the keys that are remembered
	deadFolder   = "dead"      // items that were given out too often
	takersFolder = "takers"    // the line of those who wait for an item
	deliveryName = "delivery-" // below an item: made and deleted again to count
)

const (
	maxKeyBytes = 200
	keyPrefix   = "key=" // of the id of an item that has a key
)

// itemName is the name of an item's znode, <priority>-<id>-<number>: the priority
// in eight hexadecimal digits with the sign turned, so that names sort by it.
type itemName struct {
	text     string
	priority int
	id       string
	number   uint64
}

// itemPrefix is the name of a new item, up to its number.
func itemPrefix(priority int, id string) string {
	return fmt.Sprintf("%08x-%s-", uint32(priority)^signBit, id)
}

const (
	signBit        = 1 << 31
	priorityDigits = 8
)

// parseItem reads a child's name. ok is false for what is no item.
func parseItem(name string) (n itemName, ok bool) {
	number, ok := znode.SequenceOf(name)
	head := strings.TrimRight(name, "0123456789")
	if !ok || len(head) < priorityDigits+3 || head[priorityDigits] != '-' || head[len(head)-1] != '-' {
		return itemName{}, false
	}
	p, err := strconv.ParseUint(name[:priorityDigits], 16, 32)
	if err != nil || strings.ToLower(name[:priorityDigits]) != name[:priorityDigits] {
		return itemName{}, false
	}
	priority := int(int32(uint32(p) ^ signBit))
	return itemName{text: name, priority: priority, id: head[priorityDigits+1 : len(head)-1], number: number}, true
}

// compare is the order in which items come out: by priority, then as they came.
func (n itemName) compare(o itemName) int {
	return cmp.Or(cmp.Compare(n.priority, o.priority), cmp.Compare(n.number, o.number), strings.Compare(n.text, o.text))
}

// key is the key that the item was put with, "" for none.
func (n itemName) key() string {
	text, ok := strings.CutPrefix(n.id, keyPrefix)
	if !ok {
		return ""
	}
	key, err := url.PathUnescape(text)
	if err != nil {
		return ""
	}
	return key
}

func (n itemName) keyed() bool { return strings.HasPrefix(n.id, keyPrefix) }

func validKey(key string) bool {
	return key != "" && len(key) <= maxKeyBytes && utf8.ValidString(key)
}

// keyID is the id of an item with a key. Everything but letters, digits and a few
// signs is escaped, so that any key can be a znode's name and be read there.
func keyID(key string) string {
	var b strings.Builder
	b.WriteString(keyPrefix)
	for i := range len(key) {
		c := key[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-:@+", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// newID is the id of an item without a key.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it does not fail
	return hex.EncodeToString(b[:])
}
