package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/lock"
)

// States of a token.
const (
	tokenValid   = "valid"
	tokenStale   = "stale"
	tokenWaiting = "waiting"
	tokenUnknown = "unknown"
)

func newLocksCheckCmd(e *env) *cobra.Command {
	var text string
	cmd := &cobra.Command{
		Use:   "check PATH --token TOKEN",
		Short: "Say whether a fencing token is that of a holder",
		Long: `Say whether a fencing token is that of a present holder of the lock: valid, stale,
waiting (it stands in the line), or unknown (none that this lock has given out yet).
It is a linearizable read: once the lock has gone on to the next holder, it is
never said to be valid. What it says can be out of date by the time it is read; a
resource that writes should compare tokens itself (package fence), or put the check
into its transaction ('coordctl txn', operation check with czxid and owner).

Exit code: 0 valid, 4 anything else. Without --token, $` + fence.EnvToken + ` is asked.`,
		Example: "  coordctl locks check /locks/nightly-report --token 180388633090\n" +
			"  coordctl lock /locks/x sh -c 'coordctl -q locks check \"$COORD_LOCK_PATH\" && ./step2'",
		Args:              withPath(cobra.ExactArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			token, err := tokenFrom(text)
			if err != nil {
				return err
			}
			if e.stale {
				return usagef("locks check: --stale cannot say whether a token is valid")
			}
			return as("locks check", e.checkToken(cmd.Context(), args[0], token))
		},
	}
	cmd.Flags().StringVar(&text, "token", "", "the token, as $"+fence.EnvToken+" has it")
	return cmd
}

func tokenFrom(text string) (fence.Token, error) {
	if text == "" {
		if token, ok := fence.FromEnv(); ok {
			return token, nil
		}
		return 0, usagef("locks check needs --token, or %s in the environment", fence.EnvToken)
	}
	token, err := fence.Parse(text)
	if err != nil {
		return 0, usagef("--token: %w", err)
	}
	return token, nil
}

// tokenCheck is what check prints for scripts.
type tokenCheck struct {
	Path   string `json:"path"`
	Token  string `json:"token"`
	State  string `json:"state"`  // valid, stale, waiting or unknown
	Holder *party `json:"holder"` // who has the token, or has the lock now; null if nobody
}

func (e *env) checkToken(ctx context.Context, p string, token fence.Token) error {
	result := tokenCheck{Path: p, Token: token.String()}
	err := e.withMany(ctx, func(ctx context.Context, c *client.Client, answered func()) error {
		info, err := lock.Inspect(ctx, c, p)
		if err != nil {
			return err
		}
		answered()
		result.State, result.Holder, err = stateOf(ctx, c, &info, token)
		return err
	})
	if err != nil {
		return err
	}
	err = e.object("LockCheck", &result, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, result.text())
		return err
	})
	if err == nil && result.State != tokenValid {
		return exitError(exitPrecondition)
	}
	return err
}

// stateOf compares the token with what was found. A holder stays one until its
// znode has gone, or is nobody's any more; so if that is seen to be there now, the
// token was valid when this was read. The znode of a mutex and a slot have the
// token as their czxid; that of a read-write lock has a name that does not come
// again.
func stateOf(ctx context.Context, c *client.Client, info *lock.Info, token fence.Token) (string, *party, error) {
	newest := fence.Token(0)
	var first *party
	for i := range info.Holders {
		h := &info.Holders[i]
		who := newParty(h, nil)
		if first == nil {
			first = &who
		}
		newest = max(newest, h.Token)
		if h.Token != token || h.Session == 0 {
			continue
		}
		st, ok, err := c.Exists(ctx, h.Node, client.Mode(client.Linearizable))
		if err != nil {
			return "", nil, err
		}
		if ok && st.EphemeralOwner == h.Session && (h.Role != "" || fence.Token(st.Czxid) == token) {
			return tokenValid, &who, nil
		}
		return tokenStale, first, nil
	}
	for i := range info.Waiters {
		if info.Waiters[i].Token == token {
			return tokenWaiting, first, nil
		}
	}
	if first != nil && token > newest {
		return tokenUnknown, first, nil
	}
	return tokenStale, first, nil
}

func (r *tokenCheck) text() string {
	s := fmt.Sprintf("%s: token %s of %s", r.State, r.Token, oneLine(r.Path))
	h := r.Holder
	switch {
	case h == nil:
		return s + "; nobody holds it"
	case r.State == tokenValid:
		return s + ", held by " + oneLine(h.name())
	default:
		return s + fmt.Sprintf("; %s holds it with token %s", oneLine(h.name()), dash(h.Token))
	}
}
