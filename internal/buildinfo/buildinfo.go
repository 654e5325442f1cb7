// Package buildinfo says which build of coordd this is.
package buildinfo

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is the release this source becomes. It is changed by hand together
// with CHANGELOG.md, so that builds are reproducible.
const Version = "0.1.0"

// Revision is the commit the binary was built from, "" when the build did not
// record it.
func Revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return ""
}

// Line is what `coordd version` and `coordctl version` print.
func Line(program string) string {
	line := fmt.Sprintf("%s %s %s %s/%s", program, Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if r := Revision(); r != "" {
		line += " " + r[:min(12, len(r))]
	}
	return line
}
