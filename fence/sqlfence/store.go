package sqlfence

import (
	"context"
	"database/sql"

	"github.com/coordd/coord/fence"
)

// NewStore returns a fence.Store whose marks are rows in db, for a resource that
// is not in the database itself. Each Admit is a transaction of its own; what
// the caller does after it is not part of it.
//
// Besides the errors of fence.Store, Admit returns those of [WithTx]. After
// [ErrUnknownOutcome] it may be called again with the same token, except in
// strict mode, where a refusal with Seen equal to Got may then be the echo of
// the first call.
func NewStore(db *sql.DB, opts ...Option) fence.Store {
	c, err := newConfig(opts)
	return &store{db: db, config: c, err: err}
}

// store is immutable. err is what was wrong with the options.
type store struct {
	db     *sql.DB
	config config
	err    error
}

func (s *store) Admit(ctx context.Context, resource string, t fence.Token) error {
	if s.err != nil {
		return s.err
	}
	return s.config.run(ctx, s.db, func(tx *sql.Tx) error {
		return s.config.admit(ctx, tx, resource, t)
	}, nil)
}
