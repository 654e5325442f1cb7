package znode

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ValidatePath returns an error that is [ErrBadPath] and names the fault,
// unless a znode can have the path p: it starts with a slash and does not end
// in one (but "/" itself), no element is empty, "." or "..", or longer than
// 65535 bytes, and all characters are allowed. Allowed are those that ZooKeeper
// allows: valid UTF-8 without control characters, private use, specials and
// everything beyond the basic plane (no emoji).
func ValidatePath(p string) error {
	if p == root {
		return nil
	}
	if err := checkStart(p); err != nil {
		return err
	}
	for rest := p[1:]; ; {
		name, more, found := strings.Cut(rest, "/")
		if fault := nameFault(name); fault != "" {
			return badPath(p, fault)
		}
		if !found {
			return nil
		}
		rest = more
	}
}

func checkStart(p string) error {
	if p == "" {
		return badPath(p, "it is empty")
	}
	if p[0] != '/' {
		return badPath(p, "it must start with a slash")
	}
	return nil
}

func badPath(p, fault string) error {
	if len(p) > 256 {
		p = p[:256] + "..."
	}
	return fmt.Errorf("path %q: %w: %s", p, ErrBadPath, fault)
}

// nameFault says what keeps name from being an element of a path; "" is good.
func nameFault(name string) string {
	switch {
	case name == "":
		return "an element is empty"
	case name == "." || name == "..":
		return "elements . and .. are not allowed"
	case len(name) > maxNameBytes:
		return fmt.Sprintf("an element is longer than %d bytes", maxNameBytes)
	}
	for i := 0; i < len(name); {
		c := name[i]
		if c < utf8.RuneSelf {
			if c < 0x20 || c == 0x7f || c == '/' {
				return fmt.Sprintf("character U+%04X is not allowed", c)
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(name[i:])
		if r == utf8.RuneError && size == 1 {
			return "it is not valid UTF-8"
		}
		if forbidden(r) {
			return fmt.Sprintf("character U+%04X is not allowed", r)
		}
		i += size
	}
	return ""
}

// forbidden is ZooKeeper's rule, which looks at UTF-16: characters beyond the
// basic plane are two surrogates there, from the forbidden range.
func forbidden(r rune) bool {
	return r < 0x20 || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}

// splitPath cuts a path into the parent's and the last name. The parent of a
// child of the root comes out as "/". The path need not be valid: of "//a" the
// parent is "/", as in ZooKeeper, and the name "/a", which no node has.
func splitPath(p string) (parent, name string, ok bool) {
	slash := strings.LastIndexByte(p, '/')
	switch {
	case slash < 0:
		return "", "", false
	case slash == 0, slash == 1 && p[0] == '/':
		return root, p[1:], true
	default:
		return p[:slash], p[slash+1:], true
	}
}

// join is the path of the child name of parent.
func join(parent, name string) string {
	if parent == root {
		return root + name
	}
	return parent + "/" + name
}
