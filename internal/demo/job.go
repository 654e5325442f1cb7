package demo

import "context"

type jobOrder struct{}

func (w *worker) runJob(ctx context.Context, c command) (workerEvent, error) {
	return workerEvent{}, nil
}
