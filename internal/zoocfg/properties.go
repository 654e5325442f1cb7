package zoocfg

import (
	"fmt"
	"strconv"
	"strings"
)

// Entry is one key of the file. Line is that on which it begins, from 1; it is 0
// for what stands in no file.
type Entry struct {
	File, Key, Value string
	Line             int
}

// Where is the place of an entry, for messages.
func (e Entry) Where() string {
	if e.Line == 0 {
		return e.File
	}
	return fmt.Sprintf("%s:%d", e.File, e.Line)
}

// Detect says whether text looks like a zoo.cfg and not like YAML: its first line
// that says anything is a key, "=" and a value.
func Detect(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, _, ok := strings.Cut(line, "=")
		return ok && !strings.ContainsAny(strings.TrimSpace(key), " \t:{}[]\"'")
	}
	return false
}

// properties reads a file of Java's properties, which a zoo.cfg is: keys end at
// "=", ":" or a blank, a backslash at the end of a line joins it with the next
// one, and "\uXXXX" and the like stand for characters. Values are trimmed, as
// ZooKeeper does.
func properties(file string, text []byte) ([]Entry, error) {
	var out []Entry
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(text)), "\n")
	for i := 0; i < len(lines); i++ {
		line, number := strings.TrimLeft(lines[i], " \t\f"), i+1
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continues(line) && i+1 < len(lines) {
			i++
			line = line[:len(line)-1] + strings.TrimLeft(lines[i], " \t\f")
		}
		e, err := property(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, number, err)
		}
		e.File, e.Line = file, number
		out = append(out, e)
	}
	return out, nil
}

// continues says whether a line ends with an odd number of backslashes.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

func property(line string) (Entry, error) {
	end := 0
	for end < len(line) && !strings.ContainsRune("=: \t\f", rune(line[end])) {
		if line[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end, len(line))
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = rest[1:]
	}
	key, err := unescape(line[:end])
	if err != nil {
		return Entry{}, err
	}
	value, err := unescape(rest)
	return Entry{Key: strings.TrimSpace(key), Value: strings.TrimSpace(value)}, err
}

func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			if i+5 > len(s) {
				return "", fmt.Errorf(`%q ends within \uXXXX`, s)
			}
			n, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
			if err != nil {
				return "", fmt.Errorf(`\u%s is no character`, s[i+1:i+5])
			}
			b.WriteRune(rune(n))
			i += 4
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}
