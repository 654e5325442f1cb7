package settle

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/coordd/coord/client"
)

// Folders makes a path, all missing parts as containers, so that the cluster
// removes them again some time after they are empty.
func Folders(ctx context.Context, c *client.Client, path string) error {
	if path == "/" {
		return nil
	}
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		_, err := c.Create(repeatable(ctx, c), path[:i], nil, client.WithContainer())
		if err != nil && !errors.Is(err, client.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// repeatable makes a write of a client without a session be sent again when its
// answer is lost; a session does that anyway.
func repeatable(ctx context.Context, c *client.Client) context.Context {
	if c.Session().Timeout() > 0 {
		return ctx
	}
	return client.WithRequestID(ctx, rand.Text())
}

// Parent is the path of the folder that a path is in.
func Parent(path string) string {
	return path[:max(strings.LastIndexByte(path, '/'), min(1, len(path)))]
}
