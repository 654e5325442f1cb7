package session

import (
	"errors"
	"fmt"
	"testing"
)

func TestRequestIsRememberedUntilItsEndAndRefusedAfter(t *testing.T) {
	tab := NewTable()
	if r, err := tab.JudgeRequest("r", 1000, 5, 900); r != nil || err != nil {
		t.Fatalf("a new request: %v, %v", r, err)
	}
	if err := tab.Remember(&Request{ID: "r", End: 1000, Hash: 5, Value: answer("done")}); err != nil {
		t.Fatal(err)
	}
	for _, now := range []int64{0, 900, 1000} {
		tab.ForgetRequests(now)
		if r, err := tab.JudgeRequest("r", 1000, 5, now); err != nil || r.Value != answer("done") {
			t.Errorf("at %d: %v, %v, want the answer", now, r, err)
		}
		if _, err := tab.JudgeRequest("r", 1000, 6, now); !errors.Is(err, ErrRequestReused) {
			t.Errorf("at %d: other content: %v", now, err)
		}
	}
	if n := tab.ForgetRequests(1001); n != 1 || tab.Request("r") != nil {
		t.Errorf("%d forgotten after the end, want 1", n)
	}
	if _, err := tab.JudgeRequest("r", 1000, 5, 1001); !errors.Is(err, ErrRequestTooOld) {
		t.Errorf("after the end: %v, want too old", err)
	}
	mustCheck(t, tab)
}

// A busy user must not push out another's ids, and a refused id is free.
func TestFullTableRefusesAndForgetsNobody(t *testing.T) {
	tab := NewTable()
	for i := range MaxRequests {
		if err := tab.Remember(&Request{ID: fmt.Sprint(i), End: int64(i % 5000)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tab.JudgeRequest("more", 99_999, 0, 0); !errors.Is(err, ErrRequestsFull) {
		t.Errorf("one more: %v, want full", err)
	}
	if err := tab.Remember(&Request{ID: "more", End: 99_999}); !errors.Is(err, ErrRequestsFull) {
		t.Errorf("remember one more: %v, want full", err)
	}
	if tab.Request("0") == nil || tab.Request("more") != nil || tab.RequestCount() != MaxRequests {
		t.Error("a full table forgot or took something")
	}
	if n := tab.ForgetRequests(1000); n != 20_000 {
		t.Errorf("%d forgotten, want the 20,000 whose end is before 1000", n)
	}
	if r, err := tab.JudgeRequest("more", 99_999, 0, 0); r != nil || err != nil {
		t.Errorf("the refused id once there is room: %v, %v", r, err)
	}
	mustCheck(t, tab)
	tab.ForgetAllRequests()
	if got, want := tab.Digest(), NewTable().Digest(); got != want || tab.RequestCount() != 0 {
		t.Errorf("%d left, digest %#x, want %#x", tab.RequestCount(), got, want)
	}
	mustCheck(t, tab)
}

func TestRememberedRequestIsNotReplaced(t *testing.T) {
	tab := NewTable()
	if err := tab.Remember(&Request{ID: "r", End: 10, Value: answer("first")}); err != nil {
		t.Fatal(err)
	}
	if err := tab.Remember(&Request{ID: "r", End: 20, Value: answer("second")}); !errors.Is(err, ErrRequestReused) {
		t.Errorf("remember again: %v", err)
	}
	if got := tab.Request("r").Value; got != answer("first") {
		t.Errorf("the answer is %v, want the first", got)
	}
}
