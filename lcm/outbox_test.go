package lcm_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/lcm"
)

// memOutbox is an outbox in memory that keeps the port's promises and can be
// told to fail. The real one is tested with the relay where both are wired.
type memOutbox struct {
	mu      sync.Mutex
	rows    map[inventory.MessageKind][]memRow
	next    int64
	holder  string
	gen     int64
	until   time.Time
	raised  int64
	relayID string
	parked  int
	wakes   map[int]func()
	changed chan struct{} // closed and replaced at every change
	// fail, if set, is asked before each call; what it returns is the answer.
	fail func(op, holder string) error
}

type memRow struct {
	inventory.OutboxRow
	parked bool
}

var _ lcm.Outbox = (*memOutbox)(nil)

func newMemOutbox() *memOutbox {
	return &memOutbox{
		rows: map[inventory.MessageKind][]memRow{}, next: 1, wakes: map[int]func(){}, changed: make(chan struct{}),
		relayID: "relay-" + uuid.NewString(),
	}
}

func (o *memOutbox) change() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// add commits messages and tells whoever listens.
func (o *memOutbox) add(msgs ...inventory.Message) {
	o.mu.Lock()
	for i := range msgs {
		m := &msgs[i]
		o.rows[m.Kind] = append(o.rows[m.Kind], memRow{OutboxRow: inventory.OutboxRow{
			ID: o.next, Key: m.Key, Headers: m.Headers, Value: m.Value, Created: time.Now(),
		}})
		o.next++
	}
	wakes := make([]func(), 0, len(o.wakes))
	for _, w := range o.wakes {
		wakes = append(wakes, w)
	}
	o.mu.Unlock()
	for _, w := range wakes {
		w()
	}
}

// await waits until the condition holds.
func (o *memOutbox) await(t testing.TB, what string, cond func(o *memOutbox) bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		o.mu.Lock()
		ok, changed := cond(o), o.changed
		o.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			require.FailNow(t, "never came: "+what)
		}
	}
}

// left is how many rows of the kinds wait. Called with the lock held.
func (o *memOutbox) left(kinds ...inventory.MessageKind) (n int) {
	for _, k := range kinds {
		n += len(o.rows[k])
	}
	return n
}

func (o *memOutbox) allowed(ctx context.Context, op, holder string) error {
	o.mu.Lock()
	fail := o.fail
	o.mu.Unlock()
	if fail != nil {
		if err := fail(op, holder); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (o *memOutbox) Lead(ctx context.Context, holder string, ttl time.Duration) (inventory.Lease, bool, error) {
	if err := o.allowed(ctx, "lead", holder); err != nil {
		return inventory.Lease{}, false, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if held := now.Before(o.until); held && o.holder != holder {
		return inventory.Lease{}, false, nil
	} else if !held || o.holder != holder {
		o.gen++
	}
	o.holder, o.until = holder, now.Add(ttl)
	o.change()
	return inventory.Lease{Holder: holder, Generation: o.gen}, true, nil
}

func (o *memOutbox) Resign(ctx context.Context, l inventory.Lease) error {
	if err := o.allowed(ctx, "resign", l.Holder); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.Generation != o.gen {
		return inventory.ErrNotLeader
	}
	o.until, o.holder = time.Time{}, ""
	o.gen++
	o.change()
	return nil
}

func (o *memOutbox) Exchange(ctx context.Context, l inventory.Lease, kind inventory.MessageKind, acked []int64, w inventory.Window) ([]inventory.OutboxRow, error) {
	if err := o.allowed(ctx, "exchange", l.Holder); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if l.Generation != o.gen {
		return nil, inventory.ErrNotLeader
	}
	if len(acked) > 0 {
		gone := make(map[int64]struct{}, len(acked))
		for _, id := range acked {
			gone[id] = struct{}{}
		}
		o.rows[kind] = slices.DeleteFunc(o.rows[kind], func(r memRow) bool { _, ok := gone[r.ID]; return ok })
		o.change()
	}
	held := map[string]struct{}{}
	var out []inventory.OutboxRow
	bytes := 0
	for i := range o.rows[kind] {
		r := &o.rows[kind][i]
		if r.parked {
			if r.Key != nil {
				held[string(r.Key)] = struct{}{}
			}
			continue
		}
		if _, behind := held[string(r.Key)]; behind && r.Key != nil || slices.Contains(w.Blocked, partitionOf(r.Key, w.Partitions)) {
			continue
		}
		bytes += len(r.Key) + len(r.Headers) + len(r.Value)
		if len(out) == w.Rows || len(out) > 0 && bytes > w.Bytes {
			break
		}
		out = append(out, r.OutboxRow)
	}
	if o.fail != nil {
		if err := o.fail("answer", l.Holder); err != nil {
			return nil, err // done, but the caller does not know
		}
	}
	return out, nil
}

// partitionOf is where Java's default partitioner puts a key; without one, 0.
func partitionOf(key []byte, n int) int {
	if key == nil {
		return 0
	}
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return kafka.Murmur2Balancer{}.Balance(kafka.Message{Key: key}, numbers...)
}

func (o *memOutbox) Park(ctx context.Context, l inventory.Lease, kind inventory.MessageKind, id int64, _ string) error {
	if err := o.allowed(ctx, "park", l.Holder); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.rows[kind] {
		if o.rows[kind][i].ID == id {
			o.rows[kind][i].parked = true
			o.parked++
		}
	}
	o.change()
	return nil
}

func (o *memOutbox) RetryParked(ctx context.Context, l inventory.Lease) (n int, err error) {
	if err := o.allowed(ctx, "retry-parked", l.Holder); err != nil {
		return 0, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for kind := range o.rows {
		for i := range o.rows[kind] {
			if o.rows[kind][i].parked {
				o.rows[kind][i].parked = false
				n++
			}
		}
	}
	o.change()
	return n, nil
}

func (o *memOutbox) RelayID(ctx context.Context) (string, error) {
	return o.relayID, o.allowed(ctx, "relay-id", "")
}

func (o *memOutbox) RaiseSequence(ctx context.Context, above int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.raised = max(o.raised, above)
	o.next = max(o.next, above+1)
	o.change()
	return ctx.Err()
}

func (o *memOutbox) Listen(ctx context.Context, wake func()) error {
	o.mu.Lock()
	me := len(o.wakes)
	for o.wakes[me] != nil {
		me++
	}
	o.wakes[me] = wake
	o.mu.Unlock()
	<-ctx.Done()
	o.mu.Lock()
	delete(o.wakes, me)
	o.mu.Unlock()
	return ctx.Err()
}
