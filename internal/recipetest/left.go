package recipetest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/coordd/coord/client"
)

// orphans are the znodes below root that should not be there any more. With
// containers, those count too, unless there is something in them that may be left.
func (s *Scenario) orphans(ctx context.Context, eye *client.Client, root string, containers bool) (paths []string, _ error) {
	var kept []string
	for n, err := range eye.Walk(ctx, root) {
		switch {
		case errors.Is(err, client.ErrNoNode):
			return nil, nil // there is nothing
		case err != nil:
			return nil, err
		case n.Stat.Kind == client.Container && !containers:
		case s.Left != nil && s.Left(n):
			kept = append(kept, n.Path)
		default:
			paths = append(paths, n.Path)
		}
	}
	return slices.DeleteFunc(paths, func(folder string) bool {
		return slices.ContainsFunc(kept, func(path string) bool { return strings.HasPrefix(path, folder+"/") })
	}), nil
}
