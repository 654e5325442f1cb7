package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// coordctlProgram is what to type for the coordctl beside this program: its name
// if the PATH leads to it, else its path.
func coordctlProgram() string {
	const name = "coordctl"
	self, err := os.Executable()
	if err != nil {
		return name
	}
	cwd, err := os.Getwd()
	if err != nil {
		return name
	}
	found, _ := exec.LookPath(name)
	return programToType(filepath.Join(filepath.Dir(self), name), found, cwd)
}

// programToType shortens the path of a program for a shell in cwd. found is what
// the PATH leads to, "" if nothing.
func programToType(program, found, cwd string) string {
	want, err := os.Stat(program)
	if err != nil {
		return filepath.Base(program)
	}
	if have, err := os.Stat(found); err == nil && os.SameFile(have, want) {
		return filepath.Base(program)
	}
	short, err := filepath.Rel(cwd, program)
	switch {
	case err != nil || strings.HasPrefix(short, ".."):
		short = program
	case !strings.Contains(short, "/"):
		short = "./" + short
	}
	if strings.ContainsAny(short, " \t\n'\"\\$`&|;<>()*?[]#~!{}") {
		return "'" + strings.ReplaceAll(short, "'", `'\''`) + "'"
	}
	return short
}
