package recipetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
)

// crude is a lock that is one ephemeral znode. Each field is a mistake.
type crude struct {
	slow      bool // a waiter looks again much too late
	forgets   bool // who gives up leaves what it has made
	takesOver bool // takes "node exists" for "I hold it"
	deaf      bool // the holder does not hear that its session has ended
	sameToken bool // every holder has the same token
	folder    bool // makes a folder that nobody deletes
	stubborn  bool // goes on waiting when its context has ended
}

func (l crude) act(ctx context.Context, p *Party) error {
	path := p.Root
	if l.folder {
		if _, err := p.Client.Create(ctx, path, nil); err != nil && !errors.Is(err, client.ErrNodeExists) {
			return err
		}
		path += "/lock"
	}
	made, err := l.acquire(ctx, p, path)
	if err != nil {
		return err
	}
	if l.forgets {
		if _, err := p.Client.Get(ctx, path); err != nil {
			return err
		}
	}
	hold := Hold{Token: fence.Token(made.Czxid), Context: p.Client.Session().Context()}
	if l.sameToken {
		hold.Token = 7
	}
	if l.deaf && p.Name == victim {
		hold.Context = context.Background()
	}
	leave := p.Enter(hold)
	_ = Pass(hold.Context)
	if l.deaf && p.Name == victim {
		time.Sleep(3 * away)
	}
	leave()
	if err := p.Client.Delete(context.WithoutCancel(ctx), path, client.AnyVersion); !errors.Is(err, client.ErrNoNode) {
		return err
	}
	return nil
}

func (l crude) acquire(ctx context.Context, p *Party, path string) (client.Stat, error) {
	for {
		made, err := p.Client.Create(ctx, path, nil, client.WithEphemeral())
		if ctx.Err() != nil && l.stubborn {
			<-p.Client.Session().Context().Done()
		}
		if !errors.Is(err, client.ErrNodeExists) {
			return made.Stat, err
		}
		if l.takesOver {
			return client.Stat{}, nil
		}
		wait := 100 * time.Millisecond
		if l.slow {
			wait = 10 * time.Minute
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// problemsOf runs the scenario with one fault.
func problemsOf(t *testing.T, s Scenario, f Fault) (problems []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { problems = s.everyStep(t, f, 1, 1) })
	return problems
}

// TestPlantedMistakesAreFound is the test of the tests.
func TestPlantedMistakesAreFound(t *testing.T) {
	if testing.Short() && slow {
		t.Skip("tries each step; the race detector sees some of them in the other tests")
	}
	for name, c := range map[string]struct {
		lock  crude
		fault Fault
		want  string
	}{
		"lost wake-up":             {crude{slow: true}, None, "hangs"},
		"orphan of who gives up":   {crude{forgets: true}, Cancel, "left behind"},
		"exists taken for held":    {crude{takesOver: true}, None, "while"},
		"cut holder goes on":       {crude{deaf: true}, Cut, "while victim held it"},
		"expired holder goes on":   {crude{deaf: true}, Expire, "victim held it"},
		"resumed holder goes on":   {crude{deaf: true}, Pause, "victim held it"},
		"tokens do not rise":       {crude{sameToken: true}, None, "after token"},
		"folder that stays":        {crude{folder: true}, Kill, "left behind"},
		"act that does not end":    {crude{stubborn: true}, Cancel, "hangs"},
		"act that fails by itself": {crude{folder: true}, None, "left behind"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Contenders(c.lock.act)
			got := problemsOf(t, s, c.fault)
			if !strings.Contains(strings.Join(got, "\n"), c.want) {
				t.Errorf("want a problem with %q, have %q", c.want, got)
			}
		})
	}
}

// TestWorkingLockHasNoProblems: the mistakes are the only ones. It need not be
// fair, and loses its znode with its session.
func TestWorkingLockHasNoProblems(t *testing.T) {
	if testing.Short() {
		t.Skip("the mutex shows the same")
	}
	s := Contenders(crude{}.act)
	for _, f := range everyFault {
		if f == Cancel {
			continue // it cannot find out whether what it has given up was made
		}
		for _, p := range problemsOf(t, s, f) {
			t.Error(p)
		}
	}
}

func TestScenarioThatSendsNothingTestsNothing(t *testing.T) {
	got := problemsOf(t, Scenario{Act: func(context.Context, *Party) error { return nil }}, Lose)
	if len(got) != 1 || !strings.Contains(got[0], "no step") {
		t.Errorf("have %q", got)
	}
}

// TestPartiesCanReportWhatTheySee.
func TestPartiesCanReportWhatTheySee(t *testing.T) {
	s := Scenario{Act: func(ctx context.Context, p *Party) error {
		p.Fail("%d eggs are broken", 3)
		_, err := p.Client.Create(ctx, p.Root, nil, client.WithEphemeral())
		return errors.Join(err, p.Client.Close())
	}}
	got := strings.Join(problemsOf(t, s, None), "\n")
	if !strings.Contains(got, "victim: 3 eggs are broken") {
		t.Errorf("have %q", got)
	}
}
