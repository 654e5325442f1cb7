package once

import (
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"
)

// TestSchedulesHaveNoHolesAndNamesThatSort: walking from period to period, each
// begins where the one before it ended, its name is larger, and it is the same at
// every moment in it.
func TestSchedulesHaveNoHolesAndNamesThatSort(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Cairo", "Asia/Tehran"}
	schedules := map[string]Schedule{
		"hour": Every(time.Hour), "day": Every(24 * time.Hour), "7 min": Every(7 * time.Minute), "1.5 s": Every(1500 * time.Millisecond),
	}
	for _, z := range zones {
		loc, err := time.LoadLocation(z)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range [][2]int{{0, 0}, {2, 0}, {2, 30}, {3, 0}, {23, 59}} {
			schedules[z+time.Date(2000, 1, 1, at[0], at[1], 0, 0, time.UTC).Format(" 15:04")] = Daily(at[0], at[1], loc)
		}
	}
	for name, s := range schedules {
		at := time.Date(2011, 1, 1, 12, 0, 0, 0, time.UTC)
		last := ""
		for range 3 * 365 {
			p, next := s(at)
			if !next.After(at) || p <= last {
				t.Fatalf("%s: %s at %s, next %s, before it %s", name, p, at, next, last)
			}
			inside := at.Add(time.Duration(r.Int64N(int64(next.Sub(at)))))
			if q, n := s(inside); q != p || !n.Equal(next) {
				t.Fatalf("%s: %s until %s at %s, but %s until %s at %s", name, p, next, at, q, n, inside)
			}
			last, at = p, next
		}
	}
}

func TestDailyCountsEachDateOnce(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	s := Daily(2, 30, berlin)
	for at, want := range map[string]string{
		"2026-01-31T01:29:59Z": "2026-01-30",
		"2026-01-31T01:30:00Z": "2026-01-31",
		"2026-03-29T01:29:00Z": "2026-03-28", // 02:30 does not exist on the 29th: it is 03:30
		"2026-03-29T01:30:00Z": "2026-03-29",
		"2026-10-25T00:29:00Z": "2026-10-24", // 02:30 comes twice on the 25th: one of them counts
		"2026-10-25T01:30:00Z": "2026-10-25",
		"2026-10-26T01:29:00Z": "2026-10-25",
	} {
		now, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if p, next := s(now); p != want || !next.After(now) {
			t.Errorf("at %s: %s until %s, want %s", at, p, next, want)
		}
	}
}

func TestNewestListsPeriodsInOrder(t *testing.T) {
	for _, now := range []string{"2026-03-01T00:00:00Z", "2026-03-01T00:59:59.999999999Z", "2026-03-01T00:30:00Z"} {
		at, err := time.Parse(time.RFC3339Nano, now)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 2, 3, 10, 1000} {
			got, next, err := newest(Every(time.Hour), at, n)
			if err != nil || len(got) != n || got[n-1] != "2026-03-01T00:00:00Z" || next.Hour() != 1 {
				t.Fatalf("%s: %d: %v %s %v", now, n, got, next, err)
			}
			for i := range got[1:] {
				if got[i] >= got[i+1] {
					t.Fatal(got)
				}
			}
		}
	}
}
