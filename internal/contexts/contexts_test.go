package contexts

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestConcurrentUpdatesAreAllKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "contexts.yaml")
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			err := Update(path, func(f *File) error {
				f.Set(fmt.Sprint("c", i), Context{Endpoints: []string{fmt.Sprint("h:", i)}})
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	f, err := Load(path)
	if err != nil || len(f.Contexts) != 16 {
		t.Fatalf("%d contexts, %v; want 16", len(f.Contexts), err)
	}
	if got := f.Contexts["c7"].Endpoints; len(got) != 1 || got[0] != "h:7" {
		t.Fatalf("c7 = %v", got)
	}
}

func TestRefusedChangeLeavesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contexts.yaml")
	if err := Update(path, func(f *File) error { f.Current = "a"; return nil }); err != nil {
		t.Fatal(err)
	}
	if err := Update(path, func(f *File) error { f.Current = "b"; return os.ErrInvalid }); err == nil {
		t.Fatal("the refusal was swallowed")
	}
	if f, _ := Load(path); f.Current != "a" {
		t.Fatalf("current = %q, want a", f.Current)
	}
}

func TestMissingFileIsAnEmptySet(t *testing.T) {
	f, err := Load(filepath.Join(t.TempDir(), "none"))
	if err != nil || len(f.Contexts) != 0 {
		t.Fatalf("%v, %v", f, err)
	}
}

func TestDamagedFileIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contexts.yaml")
	if err := os.WriteFile(path, []byte("contexts: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil {
		t.Fatal("a damaged file was read")
	}
}
