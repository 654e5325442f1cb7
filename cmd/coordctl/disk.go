package main

import (
	"fmt"

	"github.com/coordd/coord/api/coordpb"
)

// Words for the state of a server that is short of room on its disk.
const (
	stateDiskLow  = "low on disk"
	stateDiskFull = "out of disk"
)

// diskItem is the room of one server as scripts see it, in bytes.
type diskItem struct {
	Store   int64 `json:"store"`   // of the data directory, without the reserve
	Free    int64 `json:"free"`    // beside the reserve
	Reserve int64 `json:"reserve"` // as configured
	Held    int64 `json:"held"`    // of the reserve
	Budget  int64 `json:"budget"`  // what store may be at most
	Low     bool  `json:"low"`
	Spent   bool  `json:"spent"`
	// Trouble is why there is no snapshot that was due.
	Trouble string `json:"trouble,omitempty"`
}

func newDiskItem(d *coordpb.Disk) *diskItem {
	if d == nil {
		return nil
	}
	return &diskItem{d.Store, d.Free, d.Reserve, d.Held, d.Budget, d.Low, d.Spent, d.Trouble}
}

// room says how much there is.
func (d *diskItem) room() string {
	return fmt.Sprintf("%s free beside %s of %s of reserve", size(d.Free), size(d.Held), size(d.Reserve))
}

// store and free are cells of a table.
func (d *diskItem) store() string {
	if d == nil {
		return "-"
	}
	return size(d.Store)
}

func (d *diskItem) free() string {
	if d == nil {
		return "-"
	}
	return size(d.Free)
}

// weighDisks says of the servers that are short of room what follows from it.
func (st *clusterStatus) weighDisks() {
	voters, without := 0, 0
	for i := range st.Servers {
		if m := &st.Servers[i]; m.votes() {
			voters++
			if !m.InContact || m.Disk.short() {
				without++
			}
		}
	}
	more := voters - without - voters/2 // of those that have room may join them before writes are refused
	for i := range st.Servers {
		m := &st.Servers[i]
		if !m.InContact || !m.Disk.short() {
			continue
		}
		m.State, m.Detail = stateDiskLow, m.Disk.room()
		if m.Disk.Spent {
			m.State = stateDiskFull
		}
		switch {
		case !m.votes():
		case more <= 0:
			m.Detail += "; writes are refused"
		case more == 1:
			m.Detail += "; writes are refused when one more server is short of room"
		default:
			m.Detail += fmt.Sprintf("; writes are refused when %d more servers are short of room", more)
		}
	}
}

func (d *diskItem) short() bool { return d != nil && d.Low }

// votes says whether the server counts for a majority.
func (m *memberItem) votes() bool { return m.Role == "leader" || m.Role == "follower" }

// diskNotes says what an operator should look at before it becomes a want of room.
func (st *clusterStatus) diskNotes() (notes []string) {
	for i := range st.Servers {
		if note := st.Servers[i].diskNote(); note != "" {
			notes = append(notes, note)
		}
	}
	return notes
}

func (m *memberItem) diskNote() string {
	switch d := m.Disk; {
	case d == nil || !m.InContact:
		return ""
	case d.Trouble != "":
		return fmt.Sprintf("%s cannot write a snapshot, so its log grows: %s", m.Name, d.Trouble)
	case d.Store > d.Budget:
		return fmt.Sprintf("%s: the data directory takes %s, more than the %s that it should", m.Name, size(d.Store), size(d.Budget))
	default:
		return ""
	}
}
