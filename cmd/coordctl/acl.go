package main

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/znode"
)

func newACLCmd(e *env) *cobra.Command {
	return parent("acl", "Show and set who may do what with a znode", newACLGetCmd(e), newACLSetCmd(e))
}

const aclHelp = `An entry is SCHEME:ID:PERMISSIONS, where permissions are letters:
  r read   w write   c create children   d delete children   a set the ACL

  world:anyone:r                 everybody may read
  digest:ann:HASH:rwcda          whoever knows ann's password
  auth::rwcda                    whoever this command has proved to be (--auth-file)
  ip:10.0.0.0/8:rw               an address or a network
  x509:CN=billing:rwcd           the subject of a client's certificate`

func newACLGetCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:               "get PATH",
		Short:             "Show the ACL of a znode",
		Example:           "  coordctl acl get /app/secrets",
		Args:              withPath(cobra.ExactArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, st, err := c.ACL(ctx, args[0])
				if err != nil {
					return err
				}
				return e.printACL(args[0], list, &st)
			})
		},
	}
}

func newACLSetCmd(e *env) *cobra.Command {
	var version int64
	cmd := &cobra.Command{
		Use:   "set PATH ENTRY...",
		Short: "Replace the ACL of a znode",
		Long:  "Replace the ACL of a znode; what is below it keeps its own.\n\n" + aclHelp,
		Example: "  coordctl acl set /app/public world:anyone:r auth::rwcda --auth-file ann.auth\n" +
			"  coordctl acl set --version 2 /app world:anyone:rwcda",
		Args:              withPath(cobra.MinimumNArgs(2)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkVersion(cmd, version); err != nil {
				return err
			}
			list, err := parseACL(args[1:])
			if err != nil {
				return err
			}
			return e.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				st, err := c.SetACL(repeatable(ctx), args[0], list, version)
				if err != nil {
					return err
				}
				if !anyAdmin(list) {
					e.warn("WARNING: %s: no entry has the permission a, so that only a superuser can set this ACL again", args[0])
				}
				return e.object("Node", nodeItem{Path: args[0], Stat: newStatItem(&st)}, func(io.Writer) error { return nil })
			})
		},
	}
	cmd.Flags().Int64Var(&version, "version", client.AnyVersion, "only if the ACL is at this version (aversion of the Stat)")
	cmd.Flags().Lookup("version").DefValue = "any"
	return cmd
}

// anyAdmin says whether somebody may set the ACL.
func anyAdmin(list []client.ACL) bool {
	return slices.ContainsFunc(list, func(a client.ACL) bool { return a.Perms&znode.PermAdmin != 0 })
}

// aclItem is an entry as scripts see it.
type aclItem struct {
	Scheme string `json:"scheme"`
	ID     string `json:"id"`
	Perms  string `json:"perms"`
}

func (e *env) printACL(path string, list []client.ACL, st *client.Stat) error {
	items := []aclItem{}
	for _, a := range list {
		items = append(items, aclItem{a.Scheme, a.ID, permLetters(a.Perms)})
	}
	value := struct {
		Path     string    `json:"path"`
		Aversion int64     `json:"aversion"`
		ACL      []aclItem `json:"acl"`
	}{path, st.Aversion, items}
	return e.object("ACL", value, func(w io.Writer) error {
		for _, i := range items {
			if _, err := io.WriteString(w, i.Scheme+":"+i.ID+":"+i.Perms+"\n"); err != nil {
				return err
			}
		}
		return nil
	})
}

// perms are the letters in the order in which ZooKeeper's tools print them.
var perms = []struct {
	letter string
	bit    uint32
}{
	{"c", znode.PermCreate}, {"d", znode.PermDelete}, {"r", znode.PermRead}, {"w", znode.PermWrite}, {"a", znode.PermAdmin},
}

func permLetters(bits uint32) string {
	var s string
	for _, p := range perms {
		if bits&p.bit != 0 {
			s += p.letter
		}
	}
	return s
}

// parseACL reads entries. The id may hold colons; scheme and permissions do not.
func parseACL(entries []string) ([]client.ACL, error) {
	var list []client.ACL
	for _, entry := range entries {
		first, last := strings.Index(entry, ":"), strings.LastIndex(entry, ":")
		if first <= 0 || first == last {
			return nil, usagef("ACL entry %q: want SCHEME:ID:PERMISSIONS, as in world:anyone:r", entry)
		}
		bits, ok := parsePerms(entry[last+1:])
		if !ok {
			return nil, usagef("ACL entry %q: permissions are letters of cdrwa, each once", entry)
		}
		list = append(list, client.ACL{Perms: bits, Scheme: entry[:first], ID: entry[first+1 : last]})
	}
	return list, nil
}

func parsePerms(letters string) (bits uint32, ok bool) {
	for _, r := range letters {
		found := false
		for _, p := range perms {
			if string(r) == p.letter && bits&p.bit == 0 {
				bits |= p.bit
				found = true
			}
		}
		if !found {
			return 0, false
		}
	}
	return bits, bits != 0
}
