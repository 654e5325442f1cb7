package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/coordd/coord/internal/zkimport"
)

// teller says on standard error how far something is: on a terminal on one line
// that changes, elsewhere on a line every ten seconds.
type teller struct {
	env  *env
	live bool // on a terminal
	end  chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	hidden bool       // something else is on the terminal
	shown  bool       // there is a line to be wiped
}

// tell begins for an import. stop must be called.
func (e *env) tell(p *zkimport.Progress) *teller {
	return e.tellText(func() string { return progressText(p.State()) })
}

// tellText begins; text says how far it is, "" for nothing yet. stop must be
// called.
func (e *env) tellText(text func() string) *teller {
	f, ok := e.stderr.(*os.File)
	t := &teller{env: e, live: ok && term.IsTerminal(int(f.Fd())), end: make(chan struct{})}
	if e.quiet {
		return t
	}
	every := progressEvery
	if t.live {
		every = 200 * time.Millisecond
	}
	t.wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				t.say(text())
			case <-t.end:
				return
			}
		}
	})
	return t
}

func (t *teller) say(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case text == "" || t.hidden:
	case t.live:
		fmt.Fprint(t.env.stderr, wipe+text)
		t.shown = true
	default:
		t.env.note("%s", text)
	}
}

// wipe empties the line that the cursor is on.
const wipe = "\r\x1b[K"

// hide makes room on the terminal, until show.
func (t *teller) hide() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hidden = true
	if t.shown {
		fmt.Fprint(t.env.stderr, wipe)
		t.shown = false
	}
}

func (t *teller) show() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hidden = false
}

func (t *teller) stop() {
	close(t.end)
	t.wg.Wait()
	t.hide()
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
