package boltfence

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/coordd/coord/fence"
)

// ErrInUse is returned by Open when another process has the file open.
var ErrInUse = errors.New("boltfence: the file is in use by another process")

// ErrDamaged is returned when the file holds what this package cannot have
// written. Nothing is admitted on the strength of such a file.
var ErrDamaged = errors.New("boltfence: damaged")

var bucket = []byte("coord_fence")

// Store keeps marks in a file. It may be used from any goroutine; calls that are
// made at the same time share a write to the disk.
type Store struct {
	db     *bbolt.DB
	strict bool
}

var _ fence.LockStore = (*Store)(nil)

// Option changes a Store.
type Option func(*options)

type options struct {
	strict bool
	wait   time.Duration
}

// Strict refuses a token that was admitted before, so that each token is good
// for one admission of each resource.
func Strict() Option { return func(o *options) { o.strict = true } }

// Wait is how long Open waits for another process to close the file; the default
// is 1 s.
func Wait(d time.Duration) Option { return func(o *options) { o.wait = d } }

// Open opens the file at path and makes it if it is not there; its folder must
// exist. Errors: ErrInUse, ErrDamaged, those of the file system.
func Open(path string, opts ...Option) (*Store, error) {
	o := options{wait: time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: max(o.wait, time.Nanosecond)})
	if err != nil {
		return nil, openError(path, err)
	}
	// Calls made at the same time share a write; a lone one must not wait long
	// for company.
	db.MaxBatchDelay = time.Millisecond
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
	if err == nil {
		err = syncDir(filepath.Dir(path)) // a new file is only safe with its name
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("boltfence: %s: %w", path, err), db.Close())
	}
	return &Store{db: db, strict: o.strict}, nil
}

func openError(path string, err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("%w: %s", ErrInUse, path)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrVersionMismatch), errors.Is(err, berrors.ErrChecksum):
		return fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	default:
		return fmt.Errorf("boltfence: %w", err)
	}
}

// syncDir makes the names in dir durable. Windows does that by itself, and has no
// such call.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Close closes the file. Admit then fails.
func (s *Store) Close() error { return s.db.Close() }

// Admit implements [fence.Store]. A mark that it raises is on the disk when it
// returns. ctx is looked at before the write only: a write to a file cannot be
// called back.
func (s *Store) Admit(ctx context.Context, resource string, t fence.Token) error {
	return s.admit(ctx, resource, "", t)
}

// ForLock implements [fence.LockStore].
func (s *Store) ForLock(lock string) fence.Store { return forLock{s, lock} }

type forLock struct {
	s    *Store
	lock string
}

func (f forLock) Admit(ctx context.Context, resource string, t fence.Token) error {
	return f.s.admit(ctx, resource, f.lock, t)
}

func (s *Store) admit(ctx context.Context, resource, lock string, t fence.Token) error {
	if err := validate(resource, lock, t); err != nil {
		return err
	}
	key := []byte(resource + "\x00" + lock)
	// Most calls come with the token that is the mark already: no write.
	raise := false
	err := s.db.View(func(tx *bbolt.Tx) (err error) {
		if err := ctx.Err(); err != nil {
			return err
		}
		raise, err = s.decide(tx, key, resource, lock, t)
		return err
	})
	if err == nil && raise {
		err = s.db.Batch(func(tx *bbolt.Tx) error {
			if again, err := s.decide(tx, key, resource, lock, t); err != nil || !again {
				return err
			}
			return tx.Bucket(bucket).Put(key, binary.BigEndian.AppendUint64(nil, uint64(t)))
		})
	}
	var stale *fence.StaleError
	if err == nil || errors.As(err, &stale) || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	return fmt.Errorf("boltfence: admit token %s for %q: %w", t, resource, err)
}

// decide compares t with the mark. It returns whether the mark has to be raised.
func (s *Store) decide(tx *bbolt.Tx, key []byte, resource, lock string, t fence.Token) (raise bool, err error) {
	var seen fence.Token
	if v := tx.Bucket(bucket).Get(key); v != nil {
		if len(v) != 8 {
			return false, fmt.Errorf("%w: a mark of %d bytes", ErrDamaged, len(v))
		}
		seen = fence.Token(binary.BigEndian.Uint64(v))
	}
	if t < seen || s.strict && t == seen {
		return false, &fence.StaleError{Resource: resource, Lock: lock, Got: t, Seen: seen}
	}
	return t > seen, nil
}

func validate(resource, lock string, t fence.Token) error {
	if err := t.Validate(); err != nil {
		return err
	}
	if err := fence.ValidateResource(resource); err != nil {
		return err
	}
	return fence.ValidateLock(lock)
}
