package recipetest

import (
	"context"
	"errors"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/znode"
)

// orphans are the znodes below root that should not be there any more. With
// containers, those count too.
func (s *Scenario) orphans(ctx context.Context, eye *client.Client, root string, containers bool) (paths []string, _ error) {
	for n, err := range eye.Walk(ctx, root) {
		switch {
		case errors.Is(err, client.ErrNoNode):
			return paths, nil
		case err != nil:
			return nil, err
		case n.Stat.Kind == znode.Container && !containers:
		case s.Left != nil && s.Left(n):
		default:
			paths = append(paths, n.Path)
		}
	}
	return paths, nil
}
