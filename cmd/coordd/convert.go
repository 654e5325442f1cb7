package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/coordd/coord/internal/zoocfg"
)

func newConfigConvertCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "convert ZOO_CFG",
		Short: "Print a ZooKeeper configuration as one of coordd",
		Long: `Print what a zoo.cfg means to coordd, as YAML. Every key that has no meaning
here is named at the end, with the reason. What coordd would not do as
ZooKeeper does is an error (exit code 2): the server would not start with it.

Settings that differ from server to server are marked. Leave them out where all
servers share one file, and give them in the environment.`,
		Example: "  coordd config convert /etc/zookeeper/conf/zoo.cfg > coordd.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return convert(cmd.OutOrStdout(), args[0])
		},
	}
}

func convert(w io.Writer, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return usageError{err}
	}
	src := source{file: file, text: text, env: func(string) (string, bool) { return "", false }}
	if src.zoo, err = zoocfg.Read(file, text, zoocfg.Files{Read: os.ReadFile, Exists: exists}); err != nil {
		return usageError{err}
	}
	_, all, err := loadConfig(src)
	if writeErr := writeConverted(w, src.zoo, all); writeErr != nil {
		return writeErr
	}
	if err != nil {
		return usageError{err}
	}
	return nil
}

// writeConverted prints the settings of a zoo.cfg as a configuration file.
func writeConverted(w io.Writer, zoo *zoocfg.Result, all []*setting) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, s := range all {
		i := slices.IndexFunc(zoo.Settings, func(z zoocfg.Setting) bool { return z.Name == s.name })
		if i < 0 {
			continue
		}
		comment := "# " + zoo.Settings[i].From.Key
		if slices.Contains(zoo.Own, s.name) {
			comment += "; this server's own"
		}
		if err := insert(root, s, comment); err != nil {
			return err
		}
	}
	root.FootComment = comments("", zoo.Notes) + comments("refused: ", zoo.Refused)
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	return errors.Join(enc.Encode(root), enc.Close())
}

// insert puts a setting below the node of its section, with a comment at its end.
func insert(root *yaml.Node, s *setting, comment string) error {
	var value yaml.Node
	if err := value.Encode(s.value.Interface()); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	if len(value.Content) == 0 {
		value.LineComment = comment
	}
	at, section, name := root, "", s.name
	if dot := strings.IndexByte(s.name, '.'); dot >= 0 {
		section, name = s.name[:dot], s.name[dot+1:]
		at = child(root, section)
	}
	key := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
	if len(value.Content) > 0 {
		key.HeadComment = comment
	}
	at.Content = append(at.Content, key, &value)
	return nil
}

// child is the mapping of a section, made if need be.
func child(root *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == name {
			return root.Content[i+1]
		}
	}
	m := &yaml.Node{Kind: yaml.MappingNode}
	root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, m)
	return m
}

func comments(mark string, notes []zoocfg.Note) string {
	var b strings.Builder
	for _, n := range notes {
		fmt.Fprintf(&b, "# %s%s\n", mark, n)
	}
	return b.String()
}
