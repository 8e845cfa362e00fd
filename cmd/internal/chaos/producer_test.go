package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// source names an input partition.
type source struct {
	topic     string
	partition int32
}

// producer writes the stream into the input topics, at a rate with bursts.
type producer struct {
	w      *world
	stream *Stream
	client *kgo.Client

	mu   sync.Mutex
	sent map[source][]Sent
	n    int
	errs []error
}

func newProducer(w *world, s *Stream) *producer {
	return &producer{w: w, stream: s, sent: map[source][]Sent{}, client: w.client(
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1),
		kgo.ProducerBatchCompression(kgo.SnappyCompression()), kgo.MaxBufferedRecords(1000), kgo.ProducerLinger(2*time.Millisecond),
	)}
}

// run produces until ctx ends. It writes 100 records at once now and then.
func (p *producer) run(ctx context.Context) error {
	const slice = 50 * time.Millisecond
	tick := time.NewTicker(slice)
	defer tick.Stop()
	added := map[source]bool{}
	debt := 0.0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		debt += float64(p.w.rate) * slice.Seconds()
		if p.n%1000 >= 900 { // the next hundred at once
			debt += 100
		}
		for ; debt >= 1; debt-- {
			in := p.stream.Next()
			h := source{in.Topic, in.Partition}
			if h.partition >= initialPartitions && !added[h] {
				if err := p.addPartition(ctx, h); err != nil {
					return err
				}
				added[h] = true
			}
			p.produce(in, h)
		}
	}
}

// initialPartitions are those of an input topic at the beginning.
const initialPartitions = 3

func (p *producer) produce(in Input, h source) {
	rec := &kgo.Record{Topic: in.Topic, Partition: in.Partition, Key: in.Key, Value: in.Value}
	for _, header := range in.Headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
	}
	p.mu.Lock()
	p.n++
	at := len(p.sent[h])
	p.sent[h] = append(p.sent[h], Sent{Input: in, Offset: -1})
	p.mu.Unlock()
	// It is written even if the run ends meanwhile: what was drawn counts.
	p.client.Produce(context.Background(), rec, func(r *kgo.Record, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if err != nil {
			p.errs = append(p.errs, err)
			return
		}
		s := &p.sent[h][at]
		s.Offset = r.Offset
		if answered(s) {
			p.w.watch.wrote(h, r.Offset)
		}
	})
}

// answered says that a record will have an outcome whatever becomes of it.
func answered(s *Sent) bool {
	if s.Garbage != nil {
		return s.Garbage.EventID != ""
	}
	return len(s.Events) > 0 && (s.Events[0].Outcome == "" || s.Events[0].Outcome == "all")
}

// addPartition grows a topic by one and waits until it is seen.
func (p *producer) addPartition(ctx context.Context, h source) error {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 10_000
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = h.topic, h.partition+1
	req.Topics = append(req.Topics, topic)
	for {
		res, err := req.RequestWith(ctx, p.client)
		if err == nil {
			err = kerr.ErrorForCode(res.Topics[0].ErrorCode)
		}
		if err == nil || errors.Is(err, kerr.InvalidPartitions) { // an earlier request had arrived
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		pause(ctx, 200*time.Millisecond)
	}
	for ctx.Err() == nil {
		p.client.ForceMetadataRefresh()
		if leader, _, err := p.client.PartitionLeader(h.topic, h.partition); err == nil && leader >= 0 {
			p.w.note(fault{kind: "partition added"}, time.Now(), time.Now())
			return nil
		}
		pause(ctx, 100*time.Millisecond)
	}
	return nil
}

// flush waits until the broker has all records.
func (p *producer) flush(ctx context.Context) error {
	if err := p.client.Flush(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.errs...)
}

// ends are the ends of the input partitions after a flush.
func (p *producer) ends() map[source]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	ends := map[source]int64{}
	for h, list := range p.sent {
		ends[h] = int64(len(list))
	}
	return ends
}

// pause waits, less long if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
