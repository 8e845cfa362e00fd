package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"
)

// Producer sends events to one topic, partitioned by key as Java's default
// does (murmur2). What has no key goes around. It sends at once, without a
// linger; order holds per key. A batch whose answer was lost is sent again, so
// an event can arrive twice: applying it twice is harmless, see the events'
// own rules. It is not safe for concurrent use.
type Producer struct {
	k     *Cluster
	topic string
	parts []int
	turn  int
	queue [][]*Outgoing // by partition
	// Timeout bounds how long a batch is tried for: 30s.
	Timeout time.Duration
	// BatchBytes bounds a batch: 900,000, below the brokers' default limit.
	BatchBytes int
}

// NewProducer reads the topic's partition count and never again: partitions
// added later are not used by this producer.
func (k *Cluster) NewProducer(ctx context.Context, topic string) (*Producer, error) {
	md, err := k.Metadata(ctx, topic)
	if err != nil {
		return nil, err
	}
	t := md.Topics[topic]
	if t.Err != nil {
		return nil, fmt.Errorf("topic %s: %w", topic, t.Err)
	}
	p := &Producer{k: k, topic: topic, parts: make([]int, len(t.Leaders)), queue: make([][]*Outgoing, len(t.Leaders)), Timeout: 30 * time.Second, BatchBytes: 900_000}
	for i := range p.parts {
		p.parts[i] = i
	}
	return p, nil
}

// Send returns when the brokers acknowledged all events, or with the first
// error; then some may have been stored.
func (p *Producer) Send(ctx context.Context, events ...Outgoing) error {
	for i := range p.queue {
		p.queue[i] = p.queue[i][:0]
	}
	for i := range events {
		e := &events[i]
		part := p.turn % len(p.parts)
		if e.Key == nil {
			p.turn++
		} else {
			part = kafka.Murmur2Balancer{Consistent: true}.Balance(kafka.Message{Key: e.Key}, p.parts...)
		}
		p.queue[part] = append(p.queue[part], e)
	}
	errs := make([]error, len(p.queue))
	var wg sync.WaitGroup
	for part, events := range p.queue {
		if len(events) > 0 {
			wg.Go(func() { errs[part] = p.sendTo(ctx, part, events) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// sendTo sends one partition's events in order, batch by batch.
func (p *Producer) sendTo(ctx context.Context, part int, events []*Outgoing) error {
	for len(events) > 0 {
		n, size := 0, 0
		for n < len(events) {
			if size += events[n].size(); n > 0 && size > p.BatchBytes {
				break
			}
			n++
		}
		if err := p.batch(ctx, part, events[:n]); err != nil {
			return fmt.Errorf("sending to %s/%d: %w", p.topic, part, err)
		}
		events = events[n:]
	}
	return nil
}

// size is about what an event takes in a record batch.
func (o *Outgoing) size() int {
	n := 32 + len(o.Key) + len(o.Value)
	for _, h := range o.Headers {
		n += len(h.Key) + len(h.Value) + 8
	}
	return n
}

// batch tries one batch until the answer is definite or the time is over.
func (p *Producer) batch(ctx context.Context, part int, events []*Outgoing) error {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	records := make([]kafka.Record, len(events))
	for attempt := 0; ; attempt++ {
		for i, e := range events {
			r := kafka.Record{Key: kafka.NewBytes(e.Key), Value: kafka.NewBytes(e.Value)}
			for _, h := range e.Headers {
				r.Headers = append(r.Headers, kafka.Header(h))
			}
			records[i] = r
		}
		r, err := p.k.client.Produce(ctx, &kafka.ProduceRequest{
			Topic: p.topic, Partition: part, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(records...),
		})
		if err == nil {
			err = r.Error
		}
		var code kafka.Error
		if err == nil || errors.As(err, &code) && !code.Temporary() || !sleep(ctx, pauseFor(attempt)) {
			return err
		}
	}
}
