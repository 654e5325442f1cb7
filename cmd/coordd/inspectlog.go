package main

import (
	"fmt"
	"strings"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/znode"
)

// entryItem is an entry of the log as scripts see it.
type entryItem struct {
	Index    uint64        `json:"index"`
	Term     uint64        `json:"term"`
	Type     string        `json:"type"`
	Bytes    int           `json:"bytes"`
	Clock    string        `json:"clock,omitempty"`
	Commands []commandItem `json:"commands,omitempty"`
	Members  []string      `json:"members,omitempty"`
	Damage   string        `json:"damage,omitempty"`
}

// commandItem is a command without what must not be seen: secrets, passwords,
// and the data of znodes, of which it has the length.
type commandItem struct {
	Kind   string `json:"kind"`
	Line   string `json:"line,omitempty"`
	Seq    uint64 `json:"seq,omitempty"`
	Detail string `json:"detail,omitempty"`
}

func (p *inspected) entry(e *cluster.DiskEntry) error {
	item := entryItem{Index: e.Index, Term: e.Term, Type: e.Kind, Bytes: e.Bytes, Damage: errorText(e.Damage)}
	if e.Damage != nil {
		return p.say("Entry", item, fmt.Sprintf("%d %s: %v\n", e.Index, e.Kind, e.Damage))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d term %d %s, %d bytes", e.Index, e.Term, e.Kind, e.Bytes)
	if e.Clock != 0 {
		item.Clock = clockText(e.Clock)
		text.WriteString(", " + item.Clock)
	}
	for _, m := range e.Members {
		item.Members = append(item.Members, m.ID)
		text.WriteString(" " + m.ID)
	}
	text.WriteByte('\n')
	for _, b := range e.Commands {
		c := describeCommand(b)
		item.Commands = append(item.Commands, c)
		fmt.Fprintf(&text, "    %s\n", strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s", c.Kind, c.Line, numbered(c.Seq), c.Detail)), " "))
	}
	return p.say("Entry", item, text.String())
}

func numbered(seq uint64) string {
	if seq == 0 {
		return ""
	}
	return fmt.Sprintf("number %d", seq)
}

func describeCommand(b []byte) commandItem {
	var c fsm.Command
	if err := fsm.DecodeCommand(b, &c); err != nil {
		return commandItem{Kind: "unreadable", Detail: err.Error()}
	}
	item := commandItem{Kind: c.Kind.String(), Seq: c.Seq, Detail: describeBody(&c)}
	switch {
	case c.Line.Session != 0:
		item.Line = fmt.Sprintf("session %s generation %d", c.Line.Session, c.Line.Generation)
	case c.Line.Server != "":
		item.Line = "server " + c.Line.Server
	}
	return item
}

func describeBody(c *fsm.Command) string {
	switch c.Kind {
	case fsm.CmdNewEpoch:
		return fmt.Sprintf("term %d, at least epoch %d", c.Epoch.Term, c.Epoch.MinEpoch)
	case fsm.CmdBoot:
		return c.Boot.Server
	case fsm.CmdOpen:
		return fmt.Sprintf("%q from %s at %s, timeout %s", c.Open.Name, c.Open.Address, c.Open.Server, c.Open.Timeout)
	case fsm.CmdAttach:
		return fmt.Sprintf("session %s from %s at %s, connection %d", c.Attach.Session, c.Attach.Address, c.Attach.Server, c.Attach.Connection)
	case fsm.CmdWrite:
		return describeWrite(c.Write)
	case fsm.CmdSkip:
		return fmt.Sprint(c.Code.Err())
	case fsm.CmdIdentities:
		return counted(len(c.Identities), "proof")
	case fsm.CmdExpire, fsm.CmdSuspect, fsm.CmdUnsuspect:
		return fmt.Sprintf("session %s, silent %s", c.Expire.Session, c.Expire.Silent)
	case fsm.CmdReap:
		paths := make([]string, len(c.Reap))
		for i, r := range c.Reap {
			paths[i] = r.Path
		}
		return strings.Join(paths, " ")
	case fsm.CmdTrim:
		return counted(len(c.Trim), "session")
	case fsm.CmdKill:
		return fmt.Sprintf("session %s, %s", c.Kill.Session, c.Kill.Reason)
	case fsm.CmdFeature:
		return fmt.Sprintf("level %d", c.Feature)
	case fsm.CmdRemoveServer:
		return c.Server
	case fsm.CmdRestoreBegin:
		return fmt.Sprintf("%s of %d bytes", c.Begin.ID, c.Begin.Size)
	case fsm.CmdRestoreChunk:
		return fmt.Sprintf("%d bytes from %d on", len(c.Chunk.Data), c.Chunk.Offset)
	case fsm.CmdRestoreCommit:
		return fmt.Sprintf("at least epoch %d, abandon %v", c.Commit.MinEpoch, c.Commit.Abandon)
	case fsm.CmdClose:
	}
	return ""
}

var opNames = map[znode.OpKind]string{
	znode.OpCreate: "create", znode.OpDelete: "delete", znode.OpSet: "set", znode.OpSetACL: "set-acl",
	znode.OpCheck: "check", znode.OpSequence: "sequence",
}

func describeWrite(w *fsm.Write) string {
	ops := make([]string, len(w.Ops))
	for i := range w.Ops {
		op := &w.Ops[i]
		ops[i] = fmt.Sprintf("%s %s", opNames[op.Kind], op.Path)
		if op.Data != nil {
			ops[i] += fmt.Sprintf(" (%d bytes)", len(op.Data))
		}
	}
	text := strings.Join(ops, ", ")
	if w.RequestID != "" {
		text += fmt.Sprintf(", request %q", w.RequestID)
	}
	return text
}
