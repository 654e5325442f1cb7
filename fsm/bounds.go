package fsm

import (
	"fmt"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

// Upper bounds that hold at apply, on every replica, whatever a server is
// configured to let through. They are part of the outcome of apply: changing
// one needs a feature level. A server's own limits are smaller.
const (
	// MaxDataBytes bounds the data of one znode.
	MaxDataBytes = 16 << 20
	// MaxPathBytes bounds a path.
	MaxPathBytes = 32 << 10
	// MaxOps bounds the operations of one multi.
	MaxOps = 1 << 16
	// MaxMultiBytes bounds the paths and data of one multi together. With MaxOps
	// it keeps a remembered answer within what a snapshot may hold.
	MaxMultiBytes = 32 << 20
	// MaxACLs bounds the entries of one ACL.
	MaxACLs = 1024
	// MaxNameBytes bounds names, stable identities, addresses, server and
	// request ids, and each half of an identity or an ACL id.
	MaxNameBytes = 4096
	// MaxIdentities bounds what one client can have proved about itself.
	MaxIdentities = 256
	// MaxTimeout bounds a session's timeout.
	MaxTimeout = 30 * 24 * time.Hour
	// MaxRequestValidity bounds how far ahead of the cluster's clock the end of
	// a request id may lie: an id is never dropped before its end, so ids
	// without a sensible end would fill the table for good.
	MaxRequestValidity = 24 * time.Hour
)

func badArguments(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, znode.ErrBadArguments)...)
}

func tooLarge(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrTooLarge)...)
}

// checkMulti refuses a multi past the bounds; at is the operation to blame, -1
// for the whole.
func checkMulti(ops []znode.Op) (at int, err error) {
	if len(ops) > MaxOps {
		return -1, tooLarge("multi of %d operations, at most %d", len(ops), MaxOps)
	}
	size := 0
	for i := range ops {
		if err := checkOp(&ops[i]); err != nil {
			return i, err
		}
		if size += len(ops[i].Path) + len(ops[i].Data); size > MaxMultiBytes {
			return -1, tooLarge("multi of more than %d bytes", MaxMultiBytes)
		}
	}
	return 0, nil
}

// checkOp refuses an operation past the bounds. All else is the tree's to say.
func checkOp(op *znode.Op) error {
	switch {
	case len(op.Path) > MaxPathBytes:
		return tooLarge("path of %d bytes, at most %d", len(op.Path), MaxPathBytes)
	case len(op.Data) > MaxDataBytes:
		return tooLarge("%s: data of %d bytes, at most %d", op.Path, len(op.Data), MaxDataBytes)
	case len(op.ACL) > MaxACLs:
		return tooLarge("%s: ACL of %d entries, at most %d", op.Path, len(op.ACL), MaxACLs)
	}
	for i := range op.ACL {
		if len(op.ACL[i].Scheme) > MaxNameBytes || len(op.ACL[i].ID) > MaxNameBytes {
			return tooLarge("%s: ACL entry %d, at most %d bytes", op.Path, i, MaxNameBytes)
		}
	}
	return nil
}

func checkOpen(o *Open) error {
	switch {
	case o.Nonce == session.Nonce{}:
		return badArguments("open without a nonce")
	case o.Timeout <= 0 || o.Timeout > MaxTimeout:
		return badArguments("timeout %s", o.Timeout)
	case o.Protocol > session.ZooKeeper:
		return badArguments("protocol %d", o.Protocol)
	case len(o.Name) > MaxNameBytes || len(o.Identity) > MaxNameBytes:
		return tooLarge("name or identity, at most %d bytes", MaxNameBytes)
	}
	return checkPlace(o.Server, o.Address, o.Identities)
}

func checkPlace(server, address string, ids []session.Identity) error {
	if len(server) > MaxNameBytes || len(address) > MaxNameBytes {
		return tooLarge("server or address, at most %d bytes", MaxNameBytes)
	}
	return checkIdentities(ids)
}

func checkIdentities(ids []session.Identity) error {
	if len(ids) > MaxIdentities {
		return tooLarge("%d identities, at most %d", len(ids), MaxIdentities)
	}
	for _, id := range ids {
		if len(id.Scheme) > MaxNameBytes || len(id.ID) > MaxNameBytes {
			return tooLarge("identity, at most %d bytes", MaxNameBytes)
		}
	}
	return nil
}

// checkSilence refuses a mark of suspicion that tells of no silence. What is
// too long is cut to the session's timeout.
func checkSilence(d time.Duration) error {
	if d <= 0 {
		return badArguments("silent for %s", d)
	}
	return nil
}

// checkRequest refuses a request id that could stay for ever. now is the
// cluster's clock in ms.
func checkRequest(w *Write, now int64) error {
	if len(w.RequestID) > MaxNameBytes {
		return tooLarge("request id of %d bytes, at most %d", len(w.RequestID), MaxNameBytes)
	}
	if limit := MaxRequestValidity.Milliseconds(); w.ValidUntil > now && w.ValidUntil-now > limit {
		return badArguments("request id valid for more than %s", MaxRequestValidity)
	}
	return nil
}
