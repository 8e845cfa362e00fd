package lcm

import (
	"math/rand/v2"
	"time"
)

const (
	backoffFirst = 50 * time.Millisecond
	backoffMax   = 2 * time.Second
)

// backoff is the growing pause between attempts. The zero value is ready.
type backoff struct{ next time.Duration }

func (b *backoff) reset() { b.next = 0 }

// sleep pauses, and reports whether the pause was not cut short by done.
func (b *backoff) sleep(done <-chan struct{}) bool {
	if b.next == 0 {
		b.next = backoffFirst
	}
	d := b.next/2 + jitter(b.next/2)
	b.next = min(2*b.next, backoffMax)
	return pause(done, d)
}

func pause(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return false
	case <-t.C:
		return true
	}
}

// jitter is up to d, so that workers that failed together do not retry together.
func jitter(d time.Duration) time.Duration {
	return time.Duration(rand.Int64N(max(int64(d), 1)))
}
