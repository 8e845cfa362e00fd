package proof

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"
)

const (
	// fetchBytes bounds one answer of a broker.
	fetchBytes = 4 << 20
	// fetchWait is how long a broker holds an answer when there is nothing
	// to tell. A reader that is to end waits for it.
	fetchWait = 100 * time.Millisecond
)

// Follow reads all partitions of a topic from their beginning until ctx ends,
// and then returns nil. take is called for one record at a time, in order
// within each partition; its error ends the following. A broker that is away is
// waited for once the partitions are known.
func Follow(ctx context.Context, brokers []string, topic string, take func(*kafka.Message) error) error {
	ends, err := Ends(ctx, brokers, topic)
	if err != nil {
		return err
	}
	var one sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	for p := range ends {
		g.Go(func() error {
			r := kafka.NewReader(kafka.ReaderConfig{
				Brokers: brokers, Topic: topic, Partition: p, MaxBytes: fetchBytes, MaxWait: fetchWait, QueueCapacity: 1000,
			})
			defer r.Close()
			for {
				m, err := r.FetchMessage(ctx)
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return fmt.Errorf("read %s-%d: %w", topic, p, err)
				}
				one.Lock()
				err = take(&m)
				one.Unlock()
				if err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// Ends are the ends of a topic's partitions: the offsets that the next records
// will have.
func Ends(ctx context.Context, brokers []string, topic string) (map[int]int64, error) {
	var t kafka.Transport
	defer t.CloseIdleConnections()
	c := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: &t}
	m, err := c.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, fmt.Errorf("read the partitions of %s: %w", topic, err)
	}
	if len(m.Topics) != 1 || m.Topics[0].Error != nil {
		return nil, fmt.Errorf("read the partitions of %s: %w", topic, kafka.UnknownTopicOrPartition)
	}
	var ask []kafka.OffsetRequest
	for _, p := range m.Topics[0].Partitions {
		ask = append(ask, kafka.LastOffsetOf(p.ID))
	}
	r, err := c.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: ask}})
	if err != nil {
		return nil, fmt.Errorf("read the ends of %s: %w", topic, err)
	}
	ends := make(map[int]int64, len(ask))
	for _, p := range r.Topics[topic] {
		if p.Error != nil {
			return nil, fmt.Errorf("read the end of %s-%d: %w", topic, p.Partition, p.Error)
		}
		ends[p.Partition] = p.LastOffset
	}
	return ends, nil
}

// Headers are the headers of a record, in order.
func Headers(m *kafka.Message) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, h := range m.Headers {
			if !yield(h.Key, h.Value) {
				return
			}
		}
	}
}
