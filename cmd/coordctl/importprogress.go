package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/coordd/coord/internal/zkimport"
)

// tell says on standard error how far an import is, until the function that it
// returns is called: on a terminal on one line that changes, elsewhere on a line
// every ten seconds.
func (e *env) tell(p *zkimport.Progress) (stop func()) {
	if e.quiet {
		return func() {}
	}
	f, ok := e.stderr.(*os.File)
	live := ok && term.IsTerminal(int(f.Fd()))
	every := progressEvery
	if live {
		every = 200 * time.Millisecond
	}
	var wg sync.WaitGroup
	end := make(chan struct{})
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-end:
				if live {
					fmt.Fprint(e.stderr, "\r\x1b[K")
				}
				return
			}
			switch text := progressText(p.State()); {
			case text == "":
			case live:
				fmt.Fprint(e.stderr, "\r\x1b[K"+text)
			default:
				e.note("%s", text)
			}
		}
	})
	return func() {
		close(end)
		wg.Wait()
	}
}

func progressText(s zkimport.State) string {
	switch {
	case s.Phase == "":
		return ""
	case s.Total == 0:
		return fmt.Sprintf("%s: %s", s.Phase, plural(int(s.Done), "znode"))
	case s.Phase == "copying":
		return fmt.Sprintf("copying: %d of %s (%d %%), %s", s.Done, plural(int(s.Total), "znode"), 100*s.Done/s.Total, size(s.Bytes))
	default:
		return fmt.Sprintf("%s: %d of %s", s.Phase, s.Done, plural(int(s.Total), "znode"))
	}
}
