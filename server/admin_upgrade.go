package server

import (
	"context"
	"time"

	"github.com/coordd/coord/api/coordpb"
)

// upgradeTime bounds how long raising the feature level may take.
const upgradeTime = 10 * time.Second

// Upgrade implements coordpb.AdminServer.
func (a adminService) Upgrade(ctx context.Context, req *coordpb.UpgradeRequest) (*coordpb.UpgradeReply, error) {
	what := "upgrade-status"
	if req.GetRaise() {
		what = "upgrade"
	}
	if err := a.enter(ctx, what); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, upgradeTime)
	defer cancel()
	u, err := a.s.cluster.Upgrade(ctx, req.GetRaise())
	return &coordpb.UpgradeReply{Level: u.Level, Common: u.Common, Behind: u.Behind, Error: a.outcome(err)}, nil
}
