package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/coordd/coord/internal/zoocfg"
)

// Size is a number of bytes, written as 1048576, 64KiB, 1MiB or 2GiB.
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}}

func parseSize(s string) (Size, error) {
	number, unit := strings.TrimSpace(s), int64(1)
	for _, u := range sizeUnits {
		if n, ok := strings.CutSuffix(number, u.suffix); ok {
			number, unit = strings.TrimSpace(n), u.bytes
			break
		}
	}
	v, err := strconv.ParseInt(number, 10, 64)
	if err != nil || v < 0 || v > (1<<62)/unit {
		return 0, fmt.Errorf("%q is not a size such as 1048576, 64KiB or 1MiB", s)
	}
	return Size(v * unit), nil
}

// String prints the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range []int{2, 1, 0} {
		if b := sizeUnits[u].bytes; s != 0 && int64(s)%b == 0 {
			return strconv.FormatInt(int64(s)/b, 10) + sizeUnits[u].suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// UnmarshalYAML reads what String prints.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	v, err := parseSize(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*s = v
	return nil
}

// setting is one leaf of Config.
type setting struct {
	name   string // raft.log_store
	help   string
	value  reflect.Value
	secret bool   // never shown, and no flag: others can read those of a process
	origin string // where the effective value came from
}

func (s *setting) env() string {
	return "COORDD_" + strings.ToUpper(strings.ReplaceAll(s.name, ".", "_"))
}

func (s *setting) flag() string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(s.name)
}

// set parses text, as environment and flags give it. Lists are separated by
// commas.
func (s *setting) set(text string) error {
	switch p := s.value.Addr().Interface().(type) {
	case *string:
		*p = text
	case *[]string:
		*p = splitList(text)
	case *Size:
		v, err := parseSize(text)
		if err != nil {
			return err
		}
		*p = v
	case *time.Duration:
		v, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 200ms or 10s", text)
		}
		*p = v
	case *int:
		v, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		*p = v
	case *bool:
		v, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is not true or false", text)
		}
		*p = v
	default:
		return fmt.Errorf("settings of type %T cannot be set by text", p)
	}
	return nil
}

func splitList(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// String prints the value in the form that set reads.
func (s *setting) String() string {
	if list, ok := s.value.Interface().([]string); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(s.value.Interface())
}

// settingsOf lists the leaves of c in the order of its fields.
func settingsOf(c *Config) []*setting {
	return leaves(reflect.ValueOf(c).Elem(), "")
}

func leaves(v reflect.Value, prefix string) (out []*setting) {
	for i := range v.NumField() {
		field, name := v.Type().Field(i), prefix+v.Type().Field(i).Tag.Get("yaml")
		if field.Type.Kind() == reflect.Struct {
			out = append(out, leaves(v.Field(i), name+".")...)
			continue
		}
		out = append(out, &setting{name: name, help: field.Tag.Get("help"), value: v.Field(i), secret: field.Tag.Get("secret") == "true", origin: "default"})
	}
	return out
}

// source is where settings come from, weakest first.
type source struct {
	file  string // path, for messages; "" without a file
	text  []byte
	zoo   *zoocfg.Result // what the file says if it is a zoo.cfg
	env   func(string) (string, bool)
	flags map[string]string // flag name -> text, only those that were given
}

// loadConfig layers file, environment and flags over the defaults and returns
// the settings with their origins. Unknown keys are errors with their line. The
// error names all mistakes; what comes with it has the settings that are right.
func loadConfig(src source) (*Config, []*setting, error) {
	c := defaultConfig()
	all := settingsOf(&c)
	errs := []error{decodeFile(&c, all, src)}
	for _, s := range all {
		if text, ok := src.env(s.env()); ok {
			errs = append(errs, override(s, text, "environment "+s.env()))
		}
		if text, ok := src.flags[s.flag()]; ok {
			errs = append(errs, override(s, text, "flag --"+s.flag()))
		}
	}
	return &c, all, errors.Join(append(errs, c.validate())...)
}

func override(s *setting, text, origin string) error {
	if err := s.set(text); err != nil {
		return fmt.Errorf("%s: %w", origin, err)
	}
	s.origin = origin
	return nil
}

// unknownKey is how the YAML package says that there is no such setting: with a
// name of this program's types, which is of no use to its reader.
var unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+`)

// plainYAML says what is wrong with a file in the file's own words.
func plainYAML(err error) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) {
		return err
	}
	lines := make([]string, len(wrong.Errors))
	for i, e := range wrong.Errors {
		lines[i] = unknownKey.ReplaceAllString(e, `unknown key "$1"`)
	}
	return errors.New(strings.Join(lines, "; "))
}

func decodeFile(c *Config, all []*setting, src source) error {
	switch {
	case src.file == "":
		return nil
	case src.zoo != nil:
		return applyZoo(src.zoo, all)
	}
	dec := yaml.NewDecoder(bytes.NewReader(src.text))
	dec.KnownFields(true)
	if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", src.file, plainYAML(err))
	}
	if err := dec.Decode(new(Config)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: want one YAML document, there is more", src.file)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(src.text, &root); err != nil {
		return fmt.Errorf("%s: %w", src.file, err)
	}
	lines := map[string]int{}
	if len(root.Content) > 0 {
		keyLines(root.Content[0], "", lines)
	}
	for _, s := range all {
		if line, ok := lines[s.name]; ok {
			s.origin = fmt.Sprintf("%s:%d", src.file, line)
		}
	}
	return nil
}

// keyLines notes the line of every key below n.
func keyLines(n *yaml.Node, prefix string, lines map[string]int) {
	if n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := prefix + n.Content[i].Value
		lines[name] = n.Content[i].Line
		keyLines(n.Content[i+1], name+".", lines)
	}
}
