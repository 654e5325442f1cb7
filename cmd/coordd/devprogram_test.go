package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What `coordd dev` says to type can be pasted: the coordctl beside it, by its
// name only if that leads there.
func TestProgramToTypeCanBePasted(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o700); err != nil {
			t.Fatal(err)
		}
		return file
	}
	program, other, spaced := write("bin/coordctl"), write("elsewhere/coordctl"), write("my bin/coordctl")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ program, found, cwd, want string }{
		{program, program, dir, "coordctl"},
		{program, link, dir, "coordctl"},
		{program, "", dir, "bin/coordctl"},
		{program, other, dir, "bin/coordctl"},
		{program, "", filepath.Dir(program), "./coordctl"},
		{program, "", filepath.Dir(other), program},
		{spaced, "", dir, "'my bin/coordctl'"},
		{filepath.Join(dir, "no", "coordctl"), "", dir, "coordctl"},
	} {
		if got := programToType(c.program, c.found, c.cwd); got != c.want {
			t.Errorf("%s, found %q, in %s: %s, want %s", c.program, c.found, c.cwd, got, c.want)
		}
	}
}
