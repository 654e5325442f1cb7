package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coordd/coord/cluster/peerpb"
	"github.com/coordd/coord/fsm"
)

var (
	// errStateDiffers is the cause when this server's state is not that of a
	// majority of the voters at the same log index.
	errStateDiffers = errors.New("the state of this server differs from that of the majority")
	// ErrDigestAlarm is returned for what must not be done while the servers'
	// states differ and nobody knows which one is right: a snapshot or a new
	// member would spread it.
	ErrDigestAlarm = errors.New("refused while the states of the servers differ")
	// errLevelUnknown is the cause when the cluster has been raised to a feature
	// level that this server does not know.
	errLevelUnknown = errors.New("this server is too old for its cluster")
)

// differsFile marks a data directory whose state was found wrong. It says why.
const differsFile = "DIFFERS"

// markTimeout bounds how long the mark may take before the process ends
// without it: the others will tell this server again.
const markTimeout = time.Second

// digestState is what a server knows of the comparison of digests.
type digestState struct {
	// told is the newest mark that the leader of the term has answered. Used by
	// the reporter only.
	told, term uint64
}

// newMarks are those that the leader of term does not have from us.
func (d *digestState) newMarks(m *fsm.Machine, term uint64) []*peerpb.DigestMark {
	if d.term != term {
		d.term, d.told = term, 0
	}
	found := m.Marks(d.told, maxMarksInReport)
	out := make([]*peerpb.DigestMark, len(found))
	for i, k := range found {
		out[i] = &peerpb.DigestMark{Index: k.Index, Digest: k.Digest}
	}
	return out
}

// answered notes what the leader has.
func (d *digestState) answered(sent []*peerpb.DigestMark) {
	if len(sent) > 0 {
		d.told = sent[len(sent)-1].GetIndex()
	}
}

// heed acts on what the leader says of this server's state.
func (n *Node) heed(rep *peerpb.ReportReply) {
	alarm := rep.GetAlarm()
	if old := n.alarm.Swap(&alarm); old == nil && alarm != "" || old != nil && *old != alarm {
		n.sayAlarm(alarm)
	}
	if level := rep.GetFeatureLevel(); level > n.featureLevel() {
		n.fatal(fmt.Errorf("%w: the cluster has been raised to feature level %d, this server knows %d: install the newer release again",
			errLevelUnknown, level, n.featureLevel()))
		return
	}
	if d := rep.GetDiffers(); d != nil {
		n.checkDifference(fsm.Mark{Index: d.GetIndex(), Digest: d.GetDigest()}, rep.GetEqualUpTo())
	}
}

func (n *Node) sayAlarm(alarm string) {
	if alarm == "" {
		n.log.Info("the states of the servers do not differ any more", "event", "digest_alarm_over")
		return
	}
	n.log.Error("snapshots and changes of the membership are refused: "+alarm, "event", "digest_alarm")
}

// Alarm says why snapshots and changes of the membership are refused; empty if
// they are not.
func (n *Node) Alarm() string {
	if a := n.alarm.Load(); a != nil {
		return *a
	}
	return ""
}

// MarkIndex is the log index of the newest digest noted here; 0 if there is none.
func (n *Node) MarkIndex() uint64 {
	if m := n.machine.Marks(0, 1); len(m) > 0 {
		return m[0].Index
	}
	return 0
}

// changesRefused returns ErrDigestAlarm with the reason while there is an alarm.
func (n *Node) changesRefused() error {
	if a := n.Alarm(); a != "" {
		return fmt.Errorf("%w: %s", ErrDigestAlarm, a)
	}
	return nil
}

// checkDifference ends this server if what a majority has at an index is not what
// it has itself. The leader may speak of a state that a snapshot has replaced
// since; then there is no mark here any more.
func (n *Node) checkDifference(right fsm.Mark, equal uint64) {
	own, ok := n.machine.MarkAt(right.Index)
	if !ok || own.Digest == right.Digest {
		return
	}
	n.cutOff()
	since := "an index up to"
	if equal > 0 && equal < right.Index {
		since = fmt.Sprintf("an index above %d, and up to", equal)
	}
	err := fmt.Errorf("%w since %s %d: digest %016x there, the majority has %016x: wipe %s, it will rejoin as new",
		errStateDiffers, since, right.Index, own.Digest, right.Digest, n.cfg.DataDir)
	_ = within(markTimeout, func() {
		if err := markDiffers(n.cfg.DataDir, err); err != nil {
			n.log.Error("cannot mark the data directory; a restart will be told again", "err", err)
		}
	})
	n.fatal(err)
}

// cutOff ends what others hear of this server.
func (n *Node) cutOff() {
	n.stopping.Store(true)
	if t := n.transport.Load(); t != nil {
		t.cut()
	}
}

func markDiffers(dir string, why error) error {
	return writeFileDurably(filepath.Join(dir, differsFile), []byte(why.Error()+"\n"))
}

// checkDiffers refuses a directory that is marked.
func checkDiffers(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, differsFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("data directory: %w", err)
	}
	return fmt.Errorf("%s: %w", filepath.Join(dir, differsFile), &differsError{string(b)})
}

// differsError is errStateDiffers in the words of the server that found it out.
type differsError struct{ text string }

func (e *differsError) Error() string {
	if e.text == "" {
		return errStateDiffers.Error() + ": wipe it all, it will rejoin as new"
	}
	return strings.TrimSpace(e.text[:min(len(e.text), maxReasonBytes)])
}

func (e *differsError) Unwrap() error { return errStateDiffers }
