package zoocfg

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Files are the files beside a zoo.cfg that ZooKeeper reads too.
type Files struct {
	// Read returns a file's content.
	Read func(path string) ([]byte, error)
	// Exists says whether there is a file or directory.
	Exists func(path string) bool
}

// Setting is one of coordd's settings, as text: a list has commas.
type Setting struct {
	Name, Value string
	// From is what it was made of; one without a Line is a rule of this package,
	// whose name is in Key.
	From Entry
}

// Note is what is to be known about an entry.
type Note struct {
	Entry
	Text string
	// Idle is set where the entry just has no meaning here, and nothing is lost.
	Idle bool
}

// String is the entry's place, the entry and what is to be known. Values of keys
// that hold secrets are left out.
func (n Note) String() string {
	if n.Line == 0 {
		return n.Text
	}
	return fmt.Sprintf("%s: %s: %s", n.Where(), n.Shown(), n.Text)
}

// Shown is the entry as it may be shown to everybody.
func (e Entry) Shown() string {
	lower := strings.ToLower(e.Key)
	if strings.Contains(lower, "password") && !strings.HasSuffix(lower, "path") || strings.Contains(lower, "digest") && strings.Contains(e.Value, ":") {
		return e.Key + "=..."
	}
	return e.Key + "=" + e.Value
}

// Result is what a zoo.cfg says to coordd.
type Result struct {
	// Settings are in the order in which they were decided; no name comes twice.
	Settings []Setting
	// Notes name what has no meaning here, and what the operator should know.
	Notes []Note
	// Refused name what coordd would not do as ZooKeeper does, and what cannot be
	// read. A server must not start with it.
	Refused []Note
	// Own are the names of the settings that differ from server to server.
	Own []string
}

// Get is the value of a setting.
func (r *Result) Get(name string) (string, bool) {
	for _, s := range r.Settings {
		if s.Name == name {
			return s.Value, true
		}
	}
	return "", false
}

// prefixOurs begins the keys that set one of coordd's settings by its name.
// ZooKeeper takes any key it does not know for a property of its process, so a file
// with them still starts a ZooKeeper.
const prefixOurs = "coordd."

// Read reads a zoo.cfg, and what it refers to. The error is for a file that is
// none; everything else is in the result. file is its name for messages.
func Read(file string, text []byte, files Files) (*Result, error) {
	entries, err := properties(file, text)
	if err != nil {
		return nil, err
	}
	c := &converter{file: file, files: files, entries: map[string]Entry{}}
	c.add(entries)
	c.dynamic()
	c.data()
	c.servers()
	c.ports()
	c.times()
	c.limits()
	c.secure()
	c.access()
	c.rest()
	c.ours()
	return &c.out, nil
}

// converter collects what the entries mean. Each step takes the keys that it knows;
// what is left at the end has no meaning here.
type converter struct {
	file    string
	files   Files
	entries map[string]Entry // that nobody has taken yet, the last of each key
	order   []string
	out     Result
	// client and secure are where clients are listened to, "" where not.
	client, secureClient string
}

func (c *converter) add(entries []Entry) {
	for _, e := range entries {
		e.Key = strings.TrimPrefix(e.Key, "zookeeper.")
		if old, twice := c.entries[e.Key]; twice {
			c.note(old, "comes again at "+e.Where()+", which counts")
		} else {
			c.order = append(c.order, e.Key)
		}
		c.entries[e.Key] = e
	}
}

// take returns an entry and marks it as understood.
func (c *converter) take(key string) (Entry, bool) {
	e, ok := c.entries[key]
	delete(c.entries, key)
	return e, ok
}

// taken are all entries whose keys begin with prefix, in the order of the file.
func (c *converter) taken(prefix string) (out []Entry) {
	for _, key := range c.order {
		if strings.HasPrefix(key, prefix) {
			if e, ok := c.take(key); ok {
				out = append(out, e)
			}
		}
	}
	return out
}

// number takes a key that is a whole number of at least least, or returns other.
func (c *converter) number(key string, other, least int) (int, Entry) {
	e, ok := c.take(key)
	if !ok {
		return other, c.rule("ZooKeeper's default of " + key)
	}
	n, err := strconv.Atoi(e.Value)
	if err != nil || n < least {
		c.refuse(e, fmt.Sprintf("this is no whole number from %d on", least))
		return other, e
	}
	return n, e
}

// flag takes a key that is true or false, in capitals or not.
func (c *converter) flag(key string, other bool) (bool, Entry) {
	e, ok := c.take(key)
	if !ok {
		return other, c.rule("ZooKeeper's default of " + key)
	}
	return strings.EqualFold(e.Value, "true"), e
}

// rule is where a setting comes from that is in no file.
func (c *converter) rule(what string) Entry { return Entry{File: c.file, Key: what} }

func (c *converter) set(name, value string, from Entry) {
	s := Setting{name, value, from}
	if i := slices.IndexFunc(c.out.Settings, func(have Setting) bool { return have.Name == name }); i >= 0 {
		c.out.Settings[i] = s
		return
	}
	c.out.Settings = append(c.out.Settings, s)
}

// setOwn is set for what differs from server to server.
func (c *converter) setOwn(name, value string, from Entry) {
	c.set(name, value, from)
	c.out.Own = append(c.out.Own, name)
}

func (c *converter) note(e Entry, text string) {
	c.out.Notes = append(c.out.Notes, Note{Entry: e, Text: text})
}

func (c *converter) refuse(e Entry, text string) {
	c.out.Refused = append(c.out.Refused, Note{Entry: e, Text: text})
}

// ours takes the keys that are settings of coordd, over everything else.
func (c *converter) ours() {
	for _, e := range c.taken(prefixOurs) {
		c.set(strings.TrimPrefix(e.Key, prefixOurs), e.Value, e)
	}
}
