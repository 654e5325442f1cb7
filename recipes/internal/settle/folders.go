package settle

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/coordd/coord/client"
)

// maxFolders bounds how often a path is begun anew because the cluster has removed
// its beginning, which was empty, while the rest was made.
const maxFolders = 10

// Folders makes a path, all missing parts as containers, so that the cluster
// removes them again some time after they are empty. They may be gone again when
// it returns.
func Folders(ctx context.Context, c *client.Client, path string) (err error) {
	for range maxFolders {
		if err = folders(ctx, c, path); !errors.Is(err, client.ErrNoNode) {
			return err
		}
	}
	return err
}

// folders fails with ErrNoNode if a part goes while the next one is made.
func folders(ctx context.Context, c *client.Client, path string) error {
	if path == "/" {
		return nil
	}
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		_, err := c.Create(Repeatable(ctx, c), path[:i], nil, client.WithContainer())
		if err != nil && !errors.Is(err, client.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// Repeatable makes one write of a client without a session be sent again when its
// answer is lost; a session does that anyway.
func Repeatable(ctx context.Context, c *client.Client) context.Context {
	if c.Session().Timeout() > 0 {
		return ctx
	}
	return client.WithRequestID(ctx, rand.Text())
}

// Parent is the path of the folder that a path is in.
func Parent(path string) string {
	return path[:max(strings.LastIndexByte(path, '/'), min(1, len(path)))]
}
