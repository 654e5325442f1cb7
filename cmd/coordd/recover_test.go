package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestRecoverGoesOnOnlyWithBothNames(t *testing.T) {
	for answers, want := range map[string]bool{
		"orders\nn3\n": true, " orders \n n3 \n": true,
		"orders\nn1\n": false, "orders\norders\n": false, "n3\nn3\n": false, "orders\n": false, "y\ny\n": false, "": false, "\n\n": false,
	} {
		var asked bytes.Buffer
		err := askTwice(t.Context(), "orders", "n3", strings.NewReader(answers), &asked)
		if (err == nil) != want || err != nil && !errors.As(err, new(usageError)) {
			t.Errorf("%q: %v", answers, err)
		}
		if !strings.Contains(asked.String(), "lost for good") {
			t.Errorf("%q: it asks %q", answers, asked.String())
		}
	}
}

// An interrupt at the question is the answer no, whatever is typed after it.
func TestInterruptedRecoverDoesNothing(t *testing.T) {
	in, typed := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- askTwice(ctx, "orders", "n3", in, io.Discard) }()
	if _, err := typed.Write([]byte("orders\n")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("it ends with %v", err)
	}
	_ = typed.Close() // the read that was left behind ends
}
