package load

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/segmentio/kafka-go"
)

// The types of the events, see the README.
const (
	RegistrationType = "org.onap.ncmp.inventory.registration.v1"
	StateChangeType  = "org.onap.ncmp.inventory.state-change.v1"
	// Source is the CloudEvents source of everything this package makes.
	Source = "/ncmp-inventory/load"
)

// Event is one input CloudEvent.
type Event struct {
	ID, Type, Key, Subject string
	Data                   []byte
	// Handles is how many entries the event has.
	Handles int
}

// Message is the event as a record in CloudEvents' binary mode.
func (e *Event) Message() kafka.Message {
	m := kafka.Message{
		Key:   []byte(e.Key),
		Value: e.Data,
		Headers: []kafka.Header{
			{Key: "ce_specversion", Value: []byte("1.0")},
			{Key: "ce_id", Value: []byte(e.ID)},
			{Key: "ce_source", Value: []byte(Source)},
			{Key: "ce_type", Value: []byte(e.Type)},
			{Key: "content-type", Value: []byte("application/json")},
		},
	}
	if e.Subject != "" {
		m.Headers = append(m.Headers, kafka.Header{Key: "ce_subject", Value: []byte(e.Subject)})
	}
	return m
}

// sendBytes is how much Send gathers: enough for full batches on a few
// partitions, little enough to be nobody's memory.
const sendBytes = 4 << 20

// Writer writes to a topic for Send: partitioned as Java's producers do, and
// without a wait for more.
func Writer(brokers []string, topic string) *kafka.Writer {
	return &kafka.Writer{
		Addr:         kafka.TCP(brokers...),
		Topic:        topic,
		Balancer:     kafka.Murmur2Balancer{},
		RequiredAcks: kafka.RequireAll,
		BatchTimeout: time.Millisecond,
		BatchSize:    1000,
		Transport:    &kafka.Transport{MetadataTTL: time.Second},
	}
}

// Close closes a Writer together with its connections.
func Close(w *kafka.Writer) error {
	err := w.Close()
	if t, ok := w.Transport.(*kafka.Transport); ok {
		t.CloseIdleConnections()
	}
	return err
}

// Send writes events in order and returns once the broker has them all. sent,
// if not nil, is told of every step how many handles it held.
func Send(ctx context.Context, w *kafka.Writer, events iter.Seq[Event], sent func(handles int)) error {
	var (
		batch          []kafka.Message
		bytes, handles int
	)
	flush := func() error {
		if err := w.WriteMessages(ctx, batch...); err != nil {
			return fmt.Errorf("send events to %s: %w", w.Topic, err)
		}
		if sent != nil {
			sent(handles)
		}
		clear(batch)
		batch, bytes, handles = batch[:0], 0, 0
		return nil
	}
	for e := range events {
		batch = append(batch, e.Message())
		bytes += len(e.Data) + 256 // key and headers
		handles += e.Handles
		if bytes < sendBytes {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return flush()
}
