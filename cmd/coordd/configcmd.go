package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coordd/coord/internal/zoocfg"
)

// configFlags adds --config and one flag for each setting that is no secret.
type configFlags struct {
	file  string
	flags *pflag.FlagSet
	zoo   *zoocfg.Result // what the file said when it was read, if it is a zoo.cfg
}

func (f *configFlags) add(flags *pflag.FlagSet) {
	f.flags = flags
	flags.StringVar(&f.file, "config", "", "configuration file (YAML, or a zoo.cfg of ZooKeeper)")
	c := defaultConfig()
	for _, s := range settingsOf(&c) {
		if s.secret {
			continue
		}
		flag := flags.VarPF(&textFlag{text: s.String()}, s.flag(), "", s.help)
		if s.value.Kind().String() == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
}

// textFlag keeps a flag's text; settings parse it when all layers are known.
type textFlag struct{ text string }

func (f *textFlag) String() string     { return f.text }
func (f *textFlag) Set(s string) error { f.text = s; return nil }
func (f *textFlag) Type() string       { return "value" }

// load reads the file and layers environment and flags over it.
func (f *configFlags) load() (*Config, []*setting, error) {
	c, all, err := f.read()
	if err != nil {
		return nil, nil, usageError{err}
	}
	return c, all, nil
}

// read is load, but returns what is right although there are mistakes; nothing
// if the file cannot be read.
func (f *configFlags) read() (*Config, []*setting, error) {
	src := source{file: f.file, env: os.LookupEnv, flags: map[string]string{}}
	f.flags.Visit(func(flag *pflag.Flag) {
		if flag.Name != "config" {
			src.flags[flag.Name] = flag.Value.String()
		}
	})
	if f.file != "" {
		text, err := os.ReadFile(f.file)
		if err != nil {
			return nil, nil, fmt.Errorf("--config: %w", err)
		}
		src.text = text
		if err := src.readZoo(); err != nil {
			return nil, nil, err
		}
		f.zoo = src.zoo
	}
	return loadConfig(src)
}

// unknownEnv names variables that look like settings and are none, such as a
// mistyped COORDD_RAFT_ELECTIN.
func unknownEnv(all []*setting, environ []string) (unknown []string) {
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		known := slices.ContainsFunc(all, func(s *setting) bool { return s.env() == name })
		if strings.HasPrefix(name, "COORDD_") && !known {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

func newConfigCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Check, show or convert the configuration", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheckCmd(), newConfigShowCmd(), newConfigConvertCmd())
	return cmd
}

// fileArgument lets FILE stand for --config FILE.
func (f *configFlags) fileArgument(args []string) {
	if len(args) == 1 {
		f.file = args[0]
	}
}

func newConfigCheckCmd() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:     "check [FILE]",
		Short:   "Say whether a server would start with this configuration",
		Example: "  coordd config check coordd.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.fileArgument(args)
			c, all, err := f.read()
			if c == nil {
				return usageError{err}
			}
			out := cmd.OutOrStdout()
			for _, w := range append(f.notes(false), warnings(c, all)...) {
				fmt.Fprintf(out, "WARN  %s\n", w)
			}
			if err := errors.Join(err, checkServer(c)); err != nil {
				return usageError{err}
			}
			_, err = fmt.Fprintln(out, "ok    the configuration is complete and has no unknown keys")
			return err
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func newConfigShowCmd() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:     "show [FILE]",
		Short:   "Print every effective setting and where it came from",
		Example: "  COORDD_NODE_NAME=n1 coordd config show coordd.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.fileArgument(args)
			_, all, err := f.load()
			if err != nil {
				return err
			}
			return showSettings(cmd.OutOrStdout(), all)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func showSettings(w io.Writer, all []*setting) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SETTING\tVALUE\tFROM")
	for _, s := range all {
		value := s.String()
		if s.secret && value != "" {
			value = "(set)"
		}
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", s.name, value, s.origin)
	}
	return tw.Flush()
}
