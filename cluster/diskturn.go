package cluster

// diskTurn is a lock that is held over writes to the disk. It is a channel because
// who waits for a disk should look like it: in the fake time of testing/synctest
// the clock does not go on while anybody waits for a sync.Mutex.
type diskTurn chan struct{}

func newDiskTurn() diskTurn { return make(diskTurn, 1) }

func (t diskTurn) take()     { t <- struct{}{} }
func (t diskTurn) giveBack() { <-t }
