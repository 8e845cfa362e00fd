package lcm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
)

// partitions is the topic's partition count.
func (r *Relay) partitions(ctx context.Context, topic string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ProduceTimeout)
	defer cancel()
	md, err := r.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return 0, fmt.Errorf("reading the partitions of topic %q: %w", topic, err)
	}
	for i := range md.Topics {
		t := &md.Topics[i]
		if t.Name != topic {
			continue
		}
		if t.Error != nil {
			return 0, fmt.Errorf("topic %q: %w", topic, t.Error)
		}
		if len(t.Partitions) > 0 {
			return len(t.Partitions), nil
		}
	}
	return 0, fmt.Errorf("topic %q: %w", topic, kafka.UnknownTopicOrPartition)
}

// raiseSequence makes sequences go on above those of the last records of the
// topic's n partitions.
func (r *Relay) raiseSequence(ctx context.Context, topic string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*r.cfg.ProduceTimeout)
	defer cancel()
	ask := make([]kafka.OffsetRequest, 0, 2*n)
	for p := range n {
		ask = append(ask, kafka.FirstOffsetOf(p), kafka.LastOffsetOf(p))
	}
	res, err := r.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: ask}})
	if err != nil {
		return fmt.Errorf("reading the ends of topic %q: %w", topic, err)
	}
	var highest int64
	for _, p := range res.Topics[topic] {
		if p.Error != nil {
			return fmt.Errorf("reading the end of topic %q, partition %d: %w", topic, p.Partition, p.Error)
		}
		seq, err := r.lastSequence(ctx, topic, p)
		if err != nil {
			return err
		}
		highest = max(highest, seq)
	}
	if highest == 0 {
		return nil
	}
	if err := r.outbox.RaiseSequence(ctx, highest); err != nil {
		return fmt.Errorf("raising the sequence above %d: %w", highest, err)
	}
	return nil
}

// tail is how many offsets before its end a partition is searched: the last
// ones can be another producer's, compacted away or invisible.
const tail = 16

// lastSequence is the highest sequence among a partition's last records, 0 if
// none of them has one.
func (r *Relay) lastSequence(ctx context.Context, topic string, p kafka.PartitionOffsets) (highest int64, err error) {
	for from := max(p.FirstOffset, p.LastOffset-tail); from < p.LastOffset; {
		res, err := r.client.Fetch(ctx, &kafka.FetchRequest{
			Topic: topic, Partition: p.Partition, Offset: from,
			MinBytes: 1, MaxBytes: maxBatch, MaxWait: 100 * time.Millisecond,
		})
		if err == nil {
			err = res.Error
		}
		if err != nil {
			return 0, fmt.Errorf("reading the end of topic %q, partition %d: %w", topic, p.Partition, err)
		}
		next := from
		for {
			rec, err := res.Records.ReadRecord()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return 0, fmt.Errorf("reading the end of topic %q, partition %d: %w", topic, p.Partition, err)
			}
			next = max(next, rec.Offset+1)
			highest = max(highest, sequenceOf(rec.Headers))
		}
		if next == from {
			break // nothing visible up to the end
		}
		from = next
	}
	return highest, nil
}

func sequenceOf(hs []kafka.Header) int64 {
	for i := range hs {
		if hs[i].Key == sequenceName {
			n, err := strconv.ParseInt(string(hs[i].Value), 10, 64)
			if err == nil && n > 0 {
				return n
			}
		}
	}
	return 0
}
