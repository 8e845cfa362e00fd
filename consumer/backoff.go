package consumer

import (
	"context"
	"math/rand/v2"
	"time"
)

// Retries begin at minPause and double up to maxPause: what comes back is in use
// again within 5 s, also where two pauses follow each other.
const (
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
)

// pauseFor is the pause before retry number attempt (from 0): doubled each
// time, capped, and with half of it random so that workers do not march in
// step.
func pauseFor(attempt int) time.Duration {
	d := maxPause
	if attempt < 6 {
		d = min(d, minPause<<attempt)
	}
	return d/2 + rand.N(d/2+1)
}

// sleep waits for d; false means that ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
