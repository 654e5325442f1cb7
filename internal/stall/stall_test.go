package stall

import (
	"testing"
	"testing/synctest"
)

func TestDiskMovesWhenTheLastStallIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Disk
		d.Wait(nil) // it moves
		one, two := d.Stall(), d.Stall()
		written := make(chan struct{})
		go func() { d.Wait(nil); close(written) }()
		one()
		one() // counts once
		synctest.Wait()
		select {
		case <-written:
			t.Fatal("it moves during a stall")
		default:
		}
		if !d.Stalled() {
			t.Error("it is not stalled")
		}
		given := make(chan struct{})
		close(given)
		d.Wait(given) // who is dead does not wait
		two()
		<-written
		if d.Stalled() {
			t.Error("it is stalled for ever")
		}
	})
}
