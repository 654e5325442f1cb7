package renewal

import (
	"errors"

	"github.com/coordd/coord/client"
)

// Remove deletes the node that transaction czxid has created for session owner,
// if it is still there, as soon as the session can. The outcome comes over the
// channel.
func Remove(c *client.Client, node string, czxid client.Zxid, owner client.SessionID) <-chan error {
	done := make(chan error, 1)
	op := client.OpDeleteNode(node, czxid, owner)
	if err := c.WriteAsync(func(_ []client.OpResult, err error) { done <- err }, op); err != nil {
		done <- err
	}
	return done
}

// Gone says whether a removal that ended with err leaves the node not there.
func Gone(err error) bool {
	return err == nil || errors.Is(err, client.ErrNoNode) || errors.Is(err, client.ErrBadVersion)
}
