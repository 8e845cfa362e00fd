package lcm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"go.uber.org/zap"

	"ncmp-inventory/inventory"
)

// partition is one partition of an output topic under one producer epoch.
// While busy it belongs to its sender's goroutine, else to the drain's.
type partition struct {
	d      *drain
	number int
	seq    int32 // of the next record, from 0 for each epoch

	busy  bool
	round int
	rows  []inventory.OutboxRow
	acked []int64
	held  map[string]struct{} // keys behind a row that was parked in this round
	err   error
}

func (p *partition) begin(round int) {
	p.busy, p.round, p.err = true, round, nil
	clear(p.held)
}

// publish sends rows in order, batch by batch. After trouble it leaves the
// rest to a later read, so that a partition in trouble holds on to no more
// than one batch.
func (p *partition) publish(ctx context.Context, rows []inventory.OutboxRow) error {
	for len(rows) > 0 && ctx.Err() == nil {
		n := fitting(p.d.kind, rows, p.d.limit)
		trouble, err := p.deliver(ctx, rows[:n])
		if err != nil || trouble {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// verdict is what an answer to a batch means.
type verdict int

const (
	delivered verdict = iota
	again             // not definite: the very same bytes once more
	refused           // by its content: too large
	renew             // the broker lost track of the producer
	fenced            // another publisher has a later epoch
)

// judge reads an answer. Whatever is not known to be definite is sent again.
func judge(err error) verdict {
	var code kafka.Error
	switch {
	case err == nil:
		return delivered
	case !errors.As(err, &code):
		return again
	}
	switch code {
	case kafka.DuplicateSequenceNumber:
		return delivered // an earlier attempt had arrived
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidRecord:
		return refused
	case kafka.OutOfOrderSequenceNumber, kafka.UnknownProducerId, kafka.InvalidProducerIDMapping:
		return renew
	case kafka.InvalidProducerEpoch, kafka.ProducerFenced:
		return fenced
	}
	return again
}

// deliver sends rows as one batch until the answer is definite. The batch goes
// out again byte for byte, under the same sequence: if an attempt did arrive,
// the broker knows the repeat and drops it. trouble says that it took more
// than one attempt.
func (p *partition) deliver(ctx context.Context, rows []inventory.OutboxRow) (trouble bool, err error) {
	rows = p.free(rows)
	if len(rows) == 0 {
		return false, nil
	}
	d := p.d
	w := writers.Get().(*batchWriter)
	w.codec = d.r.codec
	if d.kind == inventory.DeadLetterRecord {
		// The record may have come compressed, into a topic that takes no
		// more than this one.
		w.codec = kafka.Zstd.Codec()
	}
	began := time.Now()
	batch, err := w.build(d.prod, p.seq, d.kind, rows, began.UnixMilli())
	if err != nil {
		return false, err
	}
	var wait backoff
	for {
		started := time.Now()
		err := d.r.produce(ctx, d.topic, p.number, batch)
		switch judge(err) {
		case delivered:
			d.r.metrics.duration.WithLabelValues(d.label).Observe(time.Since(started).Seconds())
			d.r.metrics.published.WithLabelValues(d.label).Add(float64(len(rows)))
			d.r.board.good(d.r.log, d.topic, p.number)
			if told := d.r.cfg.Published; told != nil {
				told(d.topic, p.number, rows, began)
			}
			p.seq = advance(p.seq, len(rows))
			for i := range rows {
				p.acked = append(p.acked, rows[i].ID)
			}
			w.free()
			return trouble, nil
		case refused:
			w.free()
			if len(rows) == 1 {
				return trouble, p.park(ctx, &rows[0], err)
			}
			half := len(rows) / 2
			for _, part := range [][]inventory.OutboxRow{rows[:half], rows[half:]} {
				t, err := p.deliver(ctx, part)
				if trouble = trouble || t; err != nil {
					return trouble, err
				}
			}
			return trouble, nil
		case renew:
			return true, fmt.Errorf("%w: topic %q, partition %d: %w", errRenew, d.topic, p.number, err)
		case fenced:
			return true, fmt.Errorf("%w: topic %q, partition %d: %w", errFenced, d.topic, p.number, err)
		}
		trouble = true
		w.buf = nil // the transport may still be reading the batch: it is never used again
		if ctx.Err() != nil {
			return true, context.Cause(ctx)
		}
		d.r.metrics.retries.WithLabelValues(d.label).Inc()
		d.r.board.bad(d.r.log, d.topic, p.number, err)
		wait.sleep(ctx.Done())
	}
}

// free leaves out rows behind one that was parked a moment ago.
func (p *partition) free(rows []inventory.OutboxRow) []inventory.OutboxRow {
	if len(p.held) == 0 {
		return rows
	}
	kept := make([]inventory.OutboxRow, 0, len(rows))
	for i := range rows {
		if _, ok := p.held[string(rows[i].Key)]; rows[i].Key == nil || !ok {
			kept = append(kept, rows[i])
		}
	}
	return kept
}

// park sets a row aside; later rows of its key wait behind it.
func (p *partition) park(ctx context.Context, row *inventory.OutboxRow, cause error) error {
	d := p.d
	err := d.r.retry(ctx, ctx, "parking a message", func(ctx context.Context) error {
		return d.r.outbox.Park(ctx, d.lease, d.kind, row.ID, cause.Error())
	})
	if err != nil {
		return err
	}
	if row.Key != nil {
		if p.held == nil {
			p.held = make(map[string]struct{})
		}
		p.held[string(row.Key)] = struct{}{}
	}
	d.r.metrics.parked.WithLabelValues(d.label).Inc()
	d.r.log.Error("the broker refuses a message; it is set aside, and later ones of its key wait behind it",
		zap.String("topic", d.topic), zap.Int("partition", p.number), zap.Int64("outboxId", row.ID),
		zap.Int("bytes", len(row.Key)+len(row.Headers)+len(row.Value)), zap.Error(cause))
	return nil
}

func (r *Relay) produce(ctx context.Context, topic string, partition int, batch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ProduceTimeout)
	defer cancel()
	res, err := r.client.RawProduce(ctx, &kafka.RawProduceRequest{
		Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll,
		RawRecords: protocol.RawRecordSet{Reader: bytes.NewReader(batch)},
	})
	if err == nil {
		err = res.Error
	}
	return err
}
