package lcm_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/lcm"
)

// gate lets a network pass or stand still. While it stands still, what is
// written stays on its way; it arrives when the gate opens, whoever has given
// up waiting meanwhile.
type gate struct {
	mu      sync.Mutex
	closed  chan struct{} // nil: open
	waiting chan struct{} // one for each write held up
	late    chan error    // how the broker took what was held up
}

func newGate() *gate {
	return &gate{waiting: make(chan struct{}, 64), late: make(chan error, 64)}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.closed)
	g.closed = nil
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &gatedConn{Conn: c, gate: g}, nil
}

type gatedConn struct {
	net.Conn
	gate *gate
	held bool
}

func (c *gatedConn) Write(b []byte) (int, error) {
	c.gate.mu.Lock()
	closed := c.gate.closed
	c.gate.mu.Unlock()
	if closed != nil {
		c.held = true
		c.gate.waiting <- struct{}{}
		<-closed
	}
	return c.Conn.Write(b)
}

func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.held {
		c.held = false
		c.gate.late <- err
	}
	return n, err
}

// Deadlines would make the network forget what is on its way.
func (c *gatedConn) SetDeadline(time.Time) error      { return nil }
func (c *gatedConn) SetReadDeadline(time.Time) error  { return nil }
func (c *gatedConn) SetWriteDeadline(time.Time) error { return nil }

// frozenPublisher: a worker freezes with a batch on its way. Another one takes
// over once the lease has expired and publishes on; then the old batch arrives
// at last. It must not stand behind the newer ones.
func frozenPublisher(t *testing.T, brokers []string, topic string) {
	o, g := newMemOutbox(), newGate()
	only := func(cfg *lcm.RelayConfig) {
		cfg.Topics = map[inventory.MessageKind]string{inventory.LCMEvent: topic}
		cfg.LeaseTTL, cfg.ProduceTimeout, cfg.FlushTimeout = time.Second, time.Second, time.Millisecond
	}
	first := startWith(t, clientOf(t, brokers, g.dial), o, only)
	o.add(message(inventory.LCMEvent, "key-0", 0))
	o.await(t, "the first message", empty(inventory.LCMEvent))

	g.close()
	o.add(message(inventory.LCMEvent, "key-0", 1))
	<-g.waiting
	o.mu.Lock()
	dead := o.holder
	o.fail = func(_, holder string) error {
		if holder == dead {
			return fmt.Errorf("cut off: %w", inventory.ErrTransient)
		}
		return nil
	}
	o.mu.Unlock()

	second := startWith(t, clientOf(t, brokers, nil), o, only)
	o.await(t, "a take-over", func(o *memOutbox) bool { return o.holder != "" && o.holder != dead })
	o.add(message(inventory.LCMEvent, "key-0", 2))
	o.await(t, "an empty outbox", empty(inventory.LCMEvent))
	require.True(t, second.Status().Leading)

	g.open()
	require.NoError(t, <-g.late, "the old batch was answered")
	first.stop()
	o.add(message(inventory.LCMEvent, "key-0", 3))
	o.await(t, "an empty outbox", empty(inventory.LCMEvent))
	second.stop()

	ends, err := clientOf(t, brokers, nil).ListOffsets(t.Context(), &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(0)}},
	})
	require.NoError(t, err)
	recs := readFrom(t, brokers, topic, ends.Topics[topic][0].LastOffset)
	require.Equal(t, 4, len(recs)) //nolint:testifylint // Len would print them all
	for i, r := range recs {
		require.Equal(t, strconv.Itoa(i), string(r.Value))
	}
}

func TestFrozenPublisherIsFenced(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	require.NoError(t, c.CreateTopic("one", 1, nil))
	frozenPublisher(t, c.ListenAddrs(), "one")
}
