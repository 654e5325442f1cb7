package znode

import (
	"fmt"
	"strings"
)

// read prints what one of the reading commands gives.
func (s *script) read(command, path string) {
	switch command {
	case "get":
		data, _, err := s.tree.Get(path, &s.caller)
		switch {
		case err != nil:
			s.printf("%s: %v\n", path, err)
		case data == nil:
			s.printf("null\n")
		default:
			s.printf("%q\n", data)
		}
	case "stat":
		st, ok := s.tree.Exists(path)
		if !ok {
			s.printf("%s is not there\n", path)
			return
		}
		s.printf("%s\n", statText(st))
	case "ls":
		names, _, err := s.tree.Children(path, &s.caller)
		if err != nil {
			s.printf("%s: %v\n", path, err)
			return
		}
		s.printf("[%s]\n", strings.Join(names, " "))
	case "acl":
		list, _, err := s.tree.ACL(path, &s.caller)
		if err != nil {
			s.printf("%s: %v\n", path, err)
		}
		for _, a := range list {
			s.printf("%s:%s:%s\n", a.Scheme, a.ID, permText(a.Perms))
		}
	case "walk":
		entries, _, err := s.tree.Walk(path, &s.caller, "", 1000)
		if err != nil {
			s.printf("%s: %v\n", path, err)
		}
		for _, e := range entries {
			s.printf("%s\n", e.Path)
		}
	case "ephemerals":
		s.printf("[%s]\n", strings.Join(s.tree.Ephemerals(s.caller.Session, path), " "))
	}
}

// statText shows a Stat as ZooKeeper's tools order it.
func statText(s Stat) string {
	text := fmt.Sprintf("czxid=%v mzxid=%v pzxid=%v ctime=%d mtime=%d v=%d cv=%d av=%d len=%d children=%d",
		s.Czxid, s.Mzxid, s.Pzxid, s.Ctime, s.Mtime, s.Version, s.Cversion, s.Aversion, s.DataLength, s.NumChildren)
	if s.EphemeralOwner != 0 {
		text += fmt.Sprintf(" owner=%d", uint64(s.EphemeralOwner))
	}
	if s.Kind != Persistent {
		text += " " + s.Kind.String()
	}
	if s.TTL != 0 {
		text += " " + s.TTL.String()
	}
	if s.Linger != 0 {
		text += " linger " + s.Linger.String()
	}
	return text
}

func permText(perms uint32) (text string) {
	for bit, letter := range "rwcda" {
		if perms&(1<<bit) != 0 {
			text += string(letter)
		}
	}
	return text
}
