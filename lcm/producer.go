package lcm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"go.uber.org/zap"
)

const (
	whatOutbox   = "outbox"
	whatProducer = "producer id"
	whole        = -1 // on the board: not a single partition
)

// initProducer takes a new producer epoch, which fences every earlier
// publisher of this database. Without the right to use the transactional id it
// falls back to an idempotent producer of its own; that one fences nobody, so
// it first waits until whatever a predecessor has sent is answered or lost.
func (r *Relay) initProducer(hard, soft context.Context) (producer, error) {
	id, err := r.relayID(hard, soft)
	if err != nil || soft.Err() != nil {
		return producer{}, err
	}
	var wait backoff
	giveUp := time.Now().Add(4 * r.cfg.LeaseTTL)
	for {
		p, err := r.askProducer(hard, id)
		if errors.Is(err, kafka.TransactionalIDAuthorizationFailed) {
			r.log.Warn("no right to write with the transactional id: an older publisher is not fenced, so a take-over waits",
				zap.String("transactionalId", id), zap.Duration("wait", 2*r.cfg.ProduceTimeout))
			if p, err = r.askProducer(hard, ""); err == nil {
				r.metrics.renewed.Inc()
				r.board.good(r.log, whatProducer, whole)
				pause(soft.Done(), 2*r.cfg.ProduceTimeout)
				return p, hard.Err()
			}
		}
		if err == nil {
			r.metrics.renewed.Inc()
			r.board.good(r.log, whatProducer, whole)
			return p, nil
		}
		if hard.Err() != nil {
			return producer{}, context.Cause(hard)
		}
		r.board.bad(r.log, whatProducer, whole, err)
		if time.Now().After(giveUp) {
			return producer{}, fmt.Errorf("%w: %w", errUnreachable, err)
		}
		if !wait.sleep(soft.Done()) {
			return producer{}, nil
		}
	}
}

func (r *Relay) askProducer(ctx context.Context, transactionalID string) (producer, error) {
	// Transactions are not used, only the epoch that comes with the id.
	const unusedTransactionTimeout = 60_000
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ProduceTimeout)
	defer cancel()
	res, err := r.client.InitProducerID(ctx, &kafka.InitProducerIDRequest{
		TransactionalID: transactionalID, TransactionTimeoutMs: unusedTransactionTimeout,
		ProducerID: -1, ProducerEpoch: -1,
	})
	if err == nil {
		err = res.Error
	}
	if err != nil {
		return producer{}, fmt.Errorf("taking a producer id: %w", err)
	}
	return producer{
		id: int64(res.Producer.ProducerID), epoch: int16(res.Producer.ProducerEpoch),
	}, nil
}

func (r *Relay) relayID(hard, soft context.Context) (id string, err error) {
	err = r.retry(hard, soft, "reading the relay id", func(ctx context.Context) (err error) {
		id, err = r.outbox.RelayID(ctx)
		return err
	})
	return id, err
}

// retry calls the outbox until it succeeds, soft or hard ends, or it fails in
// a way that waiting cannot mend.
func (r *Relay) retry(hard, soft context.Context, doing string, call func(context.Context) error) error {
	var wait backoff
	for {
		ctx, cancel := context.WithTimeout(hard, r.cfg.StoreTimeout)
		err := call(ctx)
		cancel()
		switch {
		case err == nil:
			r.board.good(r.log, whatOutbox, whole)
			return nil
		case hard.Err() != nil:
			return context.Cause(hard)
		case !transient(err):
			return fmt.Errorf("%s: %w", doing, err)
		}
		r.metrics.outbox.Inc()
		r.board.bad(r.log, whatOutbox, whole, fmt.Errorf("%s: %w", doing, err))
		if !wait.sleep(soft.Done()) && hard.Err() == nil {
			return nil
		}
	}
}
