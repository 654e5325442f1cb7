package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/internal/backupfile"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

// aMachine is one that has opened its first epoch.
func aMachine(t *testing.T) *fsm.Machine {
	t.Helper()
	m := fsm.New(fsm.Options{})
	entry := fsm.AppendToBatch(fsm.NewBatch(nil, 1), fsm.AppendCommand(nil, &fsm.Command{
		Kind: fsm.CmdNewEpoch, Epoch: &fsm.NewEpoch{Term: 1, Clock: 1, MinEpoch: 9, ClusterID: "c"},
	}))
	if err := m.ApplyEntry(1, 1, entry); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestInspectTellsFilesApart(t *testing.T) {
	dir := t.TempDir()
	image := aMachine(t).Snapshot()
	snapshot := filepath.Join(dir, "1-1-1")
	if err := os.Mkdir(snapshot, 0o700); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := image.Encode(&b); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(snapshot, "state.bin")
	if err := os.WriteFile(state, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(dir, "a.cbk")
	w, err := backupfile.Create(backup, false, &coordpb.BackupInfo{Zxid: uint64(image.Zxid()), Znodes: int64(image.Znodes())})
	if err == nil {
		err = image.ForBackup().Encode(w)
	}
	if err == nil {
		_, err = w.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{snapshot: "Snapshot", state: "Snapshot", backup: "Backup"} {
		var out bytes.Buffer
		if code := run(t.Context(), []string{"inspect", path, "--json"}, &out, &out); code != 0 {
			t.Fatalf("%s: exit code %d, %s", path, code, out.String())
		}
		var doc struct{ Kind, Zxid string }
		if err := json.Unmarshal(out.Bytes(), &doc); err != nil || doc.Kind != kind || doc.Zxid != image.Zxid().String() {
			t.Errorf("%s: %s, %v", path, out.String(), err)
		}
	}
	for name, text := range map[string][]byte{"none": []byte("hello"), "cut": b.Bytes()[:b.Len()-1]} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if code := run(t.Context(), []string{"inspect", path}, &out, &out); code != exitFailed || !strings.Contains(out.String(), path) {
			t.Errorf("%s: exit code %d, %s", name, code, out.String())
		}
	}
}

// What may not be seen of a command is not in what is printed of it.
func TestCommandsAreDescribedWithoutSecrets(t *testing.T) {
	secret := session.Secret{'s', 'e', 'c', 'r', 'e', 't'}
	for _, c := range []*fsm.Command{
		{Kind: fsm.CmdOpen, Open: &fsm.Open{Secret: secret, Name: "client"}},
		{Kind: fsm.CmdAttach, Attach: &fsm.Attach{Secret: secret}},
		{Kind: fsm.CmdIdentities, Identities: []session.Identity{{Scheme: "digest", ID: "ann:secret"}}},
		{Kind: fsm.CmdWrite, Write: &fsm.Write{Ops: []znode.Op{
			{Kind: znode.OpCreate, Path: "/a", Data: []byte("secret"), ACL: []znode.ACL{{Scheme: "digest", ID: "ann:secret"}}},
		}}},
		{Kind: fsm.CmdRestoreChunk, Chunk: &fsm.RestoreChunk{Data: []byte("secret")}},
	} {
		item := describeCommand(fsm.AppendCommand(nil, c))
		if item.Kind != c.Kind.String() || strings.Contains(item.Detail+item.Line, "secret") {
			t.Errorf("%+v", item)
		}
	}
}
