package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	walsegment "github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// walFrameHeader is how many bytes stand before the index of a file of the log.
const walFrameHeader = 8

// finishRotation ends what a crash has cut short when the log went over to its
// next file. The library seals the full file first, in the write that fills it, and
// notes that and the next file afterwards, in the background. When the process
// ends in between, the library opens a file that it refuses to write to ever
// after, at every start again. It must be called before the log in dir is opened.
//
// What is wrong with the log in any other way is left for the library to say.
func finishRotation(dir string) (err error) {
	meta := &metadb.BoltMetaDB{}
	// Also when it cannot be read it may have been opened, and the library would
	// wait for ever for its lock.
	defer func() { err = errors.Join(err, meta.Close()) }()
	state, err := meta.Load(dir)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	if len(state.Segments) == 0 {
		return nil
	}
	tail := &state.Segments[len(state.Segments)-1]
	if !tail.SealTime.IsZero() {
		return nil
	}
	filer := walsegment.NewFiler(dir, fs.New())
	w, err := filer.RecoverTail(*tail)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	sealed, indexStart, err := w.Sealed()
	if err != nil || !sealed {
		return err
	}
	whole := *tail
	whole.SealTime, whole.MaxIndex, whole.IndexStart = time.Now(), w.LastIndex(), indexStart
	if !sealIsWhole(filer, w, whole) {
		return unseal(filepath.Join(dir, walsegment.FileName(*tail)), int64(indexStart)-walFrameHeader)
	}
	*tail = whole
	state.Segments = append(state.Segments, types.SegmentInfo{
		ID: state.NextSegmentID, BaseIndex: whole.MaxIndex + 1, MinIndex: whole.MaxIndex + 1,
		SizeLimit: whole.SizeLimit, Codec: whole.Codec, CreateTime: time.Now(),
	})
	state.NextSegmentID++
	return meta.CommitState(state) // the library makes a file that is noted and missing
}

// errListTooOld is returned for a log with files that its list cannot know yet.
var errListTooOld = errors.New("the list of the log's files is older than they are")

// checkFiles refuses a list of files that has gone back to what it was before: the
// library deletes every file that is not on it, and with them what was
// acknowledged. A file is numbered on the list before it is made.
func checkFiles(dir string, list *metadb.BoltMetaDB) error {
	state, err := list.Load(dir)
	if err != nil {
		return nil //nolint:nilerr // left for the library to say
	}
	files, err := walsegment.NewFiler(dir, fs.New()).List()
	if err != nil {
		return err
	}
	for id, base := range files {
		if id >= state.NextSegmentID {
			return fmt.Errorf("%s: %w: it ends before file %d, and %s is there", filepath.Join(dir, metadb.FileName), errListTooOld,
				state.NextSegmentID, walsegment.FileName(types.SegmentInfo{ID: id, BaseIndex: base}))
		}
	}
	return nil
}

// sealIsWhole says whether the index of a sealed file finds every entry that the
// file has: the write that sealed it may have been torn.
func sealIsWhole(filer *walsegment.Filer, w types.SegmentWriter, sealed types.SegmentInfo) bool {
	if sealed.MaxIndex < sealed.BaseIndex {
		return false
	}
	r, err := filer.Open(sealed)
	if err != nil {
		return false
	}
	defer r.Close()
	for i := sealed.MinIndex; i <= sealed.MaxIndex; i++ {
		if !sameEntry(w, r, i) {
			return false
		}
	}
	return true
}

func sameEntry(a, b types.SegmentReader, index uint64) bool {
	x, err := a.GetLog(index)
	if err != nil {
		return false
	}
	defer func() { _ = x.Close() }() // a buffer goes back
	y, err := b.GetLog(index)
	if err != nil {
		return false
	}
	defer func() { _ = y.Close() }()
	return bytes.Equal(x.Bs, y.Bs)
}

// unseal takes away a seal that was torn: nobody was told that the write that made
// it had succeeded.
func unseal(path string, from int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, fileMode)
	if err != nil {
		return fmt.Errorf("finish the log: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() > from {
		_, err = f.WriteAt(make([]byte, info.Size()-from), from)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("finish the log %s: %w", path, err)
	}
	return nil
}
