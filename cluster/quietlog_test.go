package cluster

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestRaftWarnsOnlyWhenSomebodyShouldLook(t *testing.T) {
	var out bytes.Buffer
	quiet := true
	h := quietHandler{slog.NewTextHandler(&out, nil), func() bool { return quiet }}
	log := slog.New(h).With("node", "n1")
	log.Warn("early")
	log.Error("bad")
	quiet = false
	log.Warn("later")
	log.Warn(overtaken)
	got := out.String()
	for text, want := range map[string]bool{"early": false, "bad": true, "later": true, overtaken: false} {
		if strings.Contains(got, text) != want {
			t.Errorf("%q is logged: %v, want %v", text, !want, want)
		}
	}
}
