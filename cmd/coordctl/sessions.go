package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/session"
)

// sessionItem is one session as scripts see it.
type sessionItem struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Address     string `json:"address"`
	Server      string `json:"server"`
	TimeoutMs   int64  `json:"timeoutMs"`
	LastHeardMs int64  `json:"lastHeardMs"` // ago; -1 unknown
	Ephemerals  int64  `json:"ephemerals"`
	Watches     int64  `json:"watches"` // -1 unknown
	Protocol    string `json:"protocol"`
	Identity    string `json:"identity,omitempty"`
	Suspect     bool   `json:"suspect"`
}

func newSessionsCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "sessions",
		Short: "List the live sessions",
		Long: `List the live sessions. A ! behind LAST HEARD marks one that has been silent for
most of its timeout. WATCHES are known of the sessions of the server that answers.`,
		Example: "  coordctl sessions\n" +
			"  coordctl sessions --json | jq -r '.items[] | select(.suspect) | .id'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := e.allSessions(cmd.Context())
			if err != nil {
				return err
			}
			l := e.newLister("Session",
				[]string{"SESSION", "NAME", "ADDRESS", "NODE", "TIMEOUT", "LAST HEARD", "EPHEMERALS", "WATCHES", "PROTOCOL"},
				[]string{"IDENTITY"})
			for i := range all {
				if err := l.add(all[i], all[i].row()...); err != nil {
					return err
				}
			}
			return l.close()
		},
	}
}

func (s *sessionItem) row() []string {
	return []string{
		s.ID, dash(s.Name), dash(s.Address), dash(s.Server),
		(time.Duration(s.TimeoutMs) * time.Millisecond).String(), s.heard(),
		strconv.FormatInt(s.Ephemerals, 10), known(s.Watches), s.Protocol, dash(s.Identity),
	}
}

// silent says that the session has not been heard of for most of its timeout.
func (s *sessionItem) silent() bool {
	return s.Suspect || s.LastHeardMs >= 0 && s.LastHeardMs*3 > s.TimeoutMs*2
}

// heard is the time of silence, marked if it is long.
func (s *sessionItem) heard() string {
	if s.LastHeardMs < 0 {
		return "-"
	}
	text := ago(time.Duration(s.LastHeardMs) * time.Millisecond)
	if s.silent() {
		text += " !"
	}
	return text
}

func known(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// allSessions reads every page.
func (e *env) allSessions(ctx context.Context) ([]sessionItem, error) {
	var out []sessionItem
	err := e.adminMany(ctx, "sessions", func(ctx context.Context, a coordpb.AdminClient, answered func()) error {
		out = nil
		for after, more := uint64(0), true; more; {
			page, err := a.Sessions(ctx, &coordpb.SessionsRequest{After: after, Limit: 1000})
			if err != nil {
				return err
			}
			answered()
			for _, s := range page.Sessions {
				out = append(out, newSessionItem(s))
				after = s.Id
			}
			more = page.More && len(page.Sessions) > 0
		}
		return nil
	})
	return out, err
}

func newSessionItem(s *coordpb.SessionInfo) sessionItem {
	return sessionItem{
		ID: session.ID(s.Id).String(), Name: s.Name, Address: s.Address, Server: s.Server,
		TimeoutMs: s.TimeoutMs, LastHeardMs: s.LastHeardMs, Ephemerals: s.Ephemerals,
		Watches: s.Watches, Protocol: s.Protocol, Identity: s.Identity, Suspect: s.Suspect,
	}
}
