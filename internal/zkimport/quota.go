package zkimport

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/coordd/coord/client"
)

// quotaAction is limits to create or to set.
type quotaAction struct {
	top     string // in the cluster
	data    []byte
	create  bool
	version client.Version // to set
}

// quotaState is what the cluster has of one quota.
type quotaState struct {
	path    string // of the limits
	top     string
	present bool
	differs bool
	version client.Version
}

// lookAtQuota finds the limits of a quota in the cluster. A quota of the root, where
// the cluster can have none, has no path.
func (v *Survey) lookAtQuota(ctx context.Context, c *client.Client, m mapping, q *quota) (quotaState, error) {
	s := quotaState{top: m.to(q.top)}
	if s.top == "/" {
		return s, nil
	}
	s.path = quotaPath + s.top + "/" + quotaLimit
	n, err := c.Get(ctx, s.path)
	switch {
	case errors.Is(err, client.ErrNoNode):
		return s, nil
	case err != nil:
		return s, err
	}
	s.present, s.differs, s.version = true, !bytes.Equal(n.Data, q.data), n.Stat.Version
	return s, nil
}

// planQuotas decides what happens with the quotas.
func (p *Plan) planQuotas(ctx context.Context, c *client.Client, overwrite bool) error {
	for i := range p.survey.quotas {
		q := &p.survey.quotas[i]
		if len(quotaPath+p.to(q.top)+"/"+quotaLimit) > p.limits.PathBytes {
			p.Faults = append(p.Faults, Fault{
				Path: quotaPath + q.top + "/" + quotaLimit, Kind: FaultPath, Limit: "limits.path_size",
				Reason: fmt.Sprintf("path of the quota is longer than %d bytes (limits.path_size)", p.limits.PathBytes),
			})
			continue
		}
		s, err := p.survey.lookAtQuota(ctx, c, p.mapping, q)
		switch {
		case err != nil:
			return err
		case s.path == "":
			p.Notes = append(p.Notes, "the quota of "+q.top+" is left out: the root of the cluster can have none")
		case s.present && !s.differs:
		case s.present && !overwrite:
			p.Conflicts = append(p.Conflicts, Conflict{s.path, []string{"limits"}})
		default:
			p.quotas = append(p.quotas, quotaAction{top: s.top, data: q.data, create: !s.present, version: s.version})
			p.Quotas++
		}
	}
	return nil
}

// writeQuotas comes when all else is done, so that no limit stops the copy itself.
// The statistics are the cluster's own business: it keeps them as soon as they are
// there.
func (p *Plan) writeQuotas(ctx context.Context, c *client.Client) error {
	for _, q := range p.quotas {
		dir := quotaPath + q.top
		if !q.create {
			if _, err := c.Set(ctx, dir+"/"+quotaLimit, q.data, q.version); err != nil {
				return err
			}
			continue
		}
		if err := createPath(ctx, c, dir); err != nil {
			return err
		}
		if _, err := c.Create(ctx, dir+"/"+quotaLimit, q.data); err != nil {
			return err
		}
		if _, err := c.Create(ctx, dir+"/"+quotaStats, nil); err != nil && !errors.Is(err, client.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// createPath creates a znode and what is missing above it.
func createPath(ctx context.Context, c *client.Client, path string) error {
	_, err := c.Create(ctx, path, nil)
	if errors.Is(err, client.ErrNoNode) {
		if err := createPath(ctx, c, parentOf(path)); err != nil {
			return err
		}
		_, err = c.Create(ctx, path, nil)
	}
	if errors.Is(err, client.ErrNodeExists) {
		return nil
	}
	return err
}
