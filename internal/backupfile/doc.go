// Package backupfile reads and writes the files that backups are kept in.
//
// A file is what a server has streamed, with a description in front and a sum
// behind it:
//
//	8 bytes   "coordbak"
//	uint32    format version, little endian like all numbers here
//	uint32    length of the description
//	          the description, a coord.v1.BackupInfo
//	          the state, as fsm.Image.Encode writes it
//	uint64    length of the state in bytes
//	32 bytes  SHA-256 of everything before
//
// A file that was cut short has no sum, so it is never taken for a whole one.
//
// A Writer and a File are used by one goroutine at a time.
package backupfile

import (
	"crypto/sha256"
	"errors"
)

const (
	version = 1
	// maxInfoBytes bounds the description.
	maxInfoBytes = 64 << 10
	headBytes    = 8 + 4 + 4
	tailBytes    = 8 + sha256.Size
)

var magic = [8]byte{'c', 'o', 'o', 'r', 'd', 'b', 'a', 'k'}

var (
	// ErrNotBackup is returned for a file that does not begin as a backup, or is
	// of a format that this program does not know.
	ErrNotBackup = errors.New("not a backup")
	// ErrDamaged is returned for a backup that is cut short or was changed.
	ErrDamaged = errors.New("the backup is damaged")
	// ErrExists is returned when a file would be overwritten.
	ErrExists = errors.New("the file exists")
)
