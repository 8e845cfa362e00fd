package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
)

const (
	// eventSource is the CloudEvents source of what the command line sends.
	eventSource = "/ncmp-inventory/cli"
	// sendBytes and sendEvents bound one step of sending: enough to fill a
	// partition's batch, little enough for any machine.
	sendBytes, sendEvents = 4 << 20, 1000
)

// event is an input CloudEvent to be sent.
type event struct {
	id string
	consumer.Outgoing
}

// attributes are those of a new event. An event whose outcome is waited for
// asks for one whatever the worker's configuration says.
func attributes(wait bool) consumer.Attributes {
	a := consumer.Attributes{ID: uuid.NewString(), Source: eventSource, Time: time.Now()}
	if wait {
		a.Outcomes = inventory.OutcomesAll
	}
	return a
}

func (e event) message() kafka.Message {
	m := kafka.Message{Key: e.Key, Value: e.Value, Headers: make([]kafka.Header, len(e.Headers))}
	for i, h := range e.Headers {
		m.Headers[i] = kafka.Header(h)
	}
	return m
}

// newProducer writes to a topic, partitioned by key as Java's producers do. It
// must be closed.
func newProducer(c config.Kafka, t *kafka.Transport, topic string) *kafka.Writer {
	return &kafka.Writer{
		Addr:         kafka.TCP(c.Brokers...),
		Transport:    t,
		Topic:        topic,
		Balancer:     kafka.Murmur2Balancer{},
		RequiredAcks: kafka.RequireAll,
		BatchSize:    sendEvents,
		BatchBytes:   64 << 20, // the topic's own limit decides
		BatchTimeout: time.Millisecond,
	}
}

// send writes events in order and returns when the brokers have them all. sent
// is told after each step how many went out.
func send(ctx context.Context, w *kafka.Writer, events iter.Seq2[event, error], sent func(...event)) error {
	var (
		step  []event
		bytes int
	)
	flush := func() error {
		messages := make([]kafka.Message, len(step))
		for i, e := range step {
			messages[i] = e.message()
		}
		if err := w.WriteMessages(ctx, messages...); err != nil {
			return fmt.Errorf("send to %s: %w", w.Topic, firstWriteError(err))
		}
		sent(step...)
		step, bytes = step[:0], 0
		return nil
	}
	for e, err := range events {
		if err != nil {
			return err
		}
		step, bytes = append(step, e), bytes+len(e.Value)
		if len(step) == sendEvents || bytes >= sendBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(step) == 0 {
		return nil
	}
	return flush()
}

// firstWriteError picks the cause out of kafka-go's list, which has an entry,
// mostly nil, for each message.
func firstWriteError(err error) error {
	var (
		all      kafka.WriteErrors
		tooLarge kafka.MessageTooLargeError
	)
	switch {
	case errors.As(err, &all):
		for _, one := range all {
			if one != nil {
				return one
			}
		}
	case errors.As(err, &tooLarge):
		return errors.New("an event is larger than the topic takes")
	}
	return err
}

// inputTopic is where an event of a kind is sent: the first of the configured.
func inputTopic(t config.Topics, kind string) (string, error) {
	topics := t.Registrations
	if kind == consumer.TypeStateChange {
		topics = t.StateChanges
	}
	if len(topics) == 0 {
		topics = t.Inputs() // the type decides, not the topic
	}
	if len(topics) == 0 {
		return "", &config.Error{Key: "kafka.topics", Reason: "no input topic is set"}
	}
	return topics[0], nil
}
