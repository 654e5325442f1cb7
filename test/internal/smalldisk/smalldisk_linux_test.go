package smalldisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if err := Private(); err != nil {
		fmt.Println(err) // the tests will say that they cannot mount
	}
	os.Exit(m.Run())
}

func newDisk(t *testing.T) *Disk {
	t.Helper()
	d, err := New(t.TempDir(), 32<<20)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func write(t *testing.T, path, text string, sync bool) {
	t.Helper()
	f, err := os.Create(path)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestPowerOffForgetsWhatWasNotSynced(t *testing.T) {
	d := newDisk(t)
	kept, lost := filepath.Join(d.Dir(), "kept"), filepath.Join(d.Dir(), "lost")
	write(t, kept, "synced", true)
	write(t, lost, "not synced", false)
	if err := d.PowerOff(); err != nil {
		t.Skip(ErrUnsupported, err)
	}
	if _, err := os.Create(filepath.Join(d.Dir(), "more")); err == nil {
		t.Error("a disk without power takes writes")
	}
	if err := d.Repair(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(kept); err != nil || string(b) != "synced" {
		t.Errorf("what was synced is %q, %v", b, err)
	}
	if b, err := os.ReadFile(lost); err == nil && len(b) > 0 {
		t.Errorf("what was not synced is still there: %q", b)
	}
}

func TestReadOnlyUntilItIsRepaired(t *testing.T) {
	d := newDisk(t)
	f, err := os.Create(filepath.Join(d.Dir(), "open"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.ReadOnly(); err != nil {
		t.Skip(ErrUnsupported, err)
	}
	if _, err := f.WriteString("x"); err == nil {
		err = f.Sync()
		if err == nil {
			t.Error("a file that was open takes writes on a disk that is read-only")
		}
	}
	f.Close()
	if err := d.Repair(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(d.Dir(), "after"), "x", true)
}

func TestFullUntilThereIsRoom(t *testing.T) {
	d := newDisk(t)
	if err := d.Fill(0); err != nil {
		t.Fatal(err)
	}
	err := os.WriteFile(filepath.Join(d.Dir(), "more"), make([]byte, 4<<20), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("err = %v, want no space", err)
	}
	if err := d.Free(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(d.Dir(), "more"), string(make([]byte, 4<<20)), true)
}

func TestFrozenWritesWaitForTheThaw(t *testing.T) {
	d := newDisk(t)
	if err := d.Freeze(); err != nil {
		t.Skip(ErrUnsupported, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = os.WriteFile(filepath.Join(d.Dir(), "file"), []byte("x"), 0o600)
	}()
	select {
	case <-done:
		t.Error("a write went through while the disk was frozen")
	case <-time.After(300 * time.Millisecond):
	}
	if err := d.Thaw(); err != nil {
		t.Fatal(err)
	}
	<-done
}
