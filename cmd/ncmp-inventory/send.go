package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/segmentio/kafka-go"
	"github.com/spf13/cobra"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/consumer"
)

// sending is how events are sent by a command.
type sending struct {
	wait, json bool
	timeout    time.Duration
}

func (s *sending) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.wait, "wait", false, "wait for the outcomes and print the entries that failed")
	cmd.Flags().DurationVar(&s.timeout, "timeout", 5*time.Minute, "how long to wait for the outcomes")
	cmd.Flags().BoolVar(&s.json, "json", false, "with --wait: print every outcome as a line of JSON")
}

// newDecoder decodes as a worker with these limits does.
func newDecoder(l config.Limits) *consumer.EventDecoder {
	return consumer.NewEventDecoder(consumer.DecoderConfig{RecordBytes: int(l.RecordBytes), HandlesPerEvent: l.HandlesPerEvent})
}

// sendEvents sends events of one type and, if asked to, waits for what became
// of them.
func (a *app) sendEvents(ctx context.Context, c *config.Loaded, kind string, events iter.Seq2[event, error], s sending) error {
	topic, err := inputTopic(c.Kafka.Topics, kind)
	if err != nil {
		return err
	}
	t, err := newTransport(c.Kafka, topic, c.Kafka.Topics.Outcomes)
	if err != nil {
		return err
	}
	defer t.CloseIdleConnections()
	cluster := consumer.NewCluster(kafka.TCP(c.Kafka.Brokers...), t)

	// Where the outcomes will come is looked up before there can be any.
	w := &waiting{topic: c.Kafka.Topics.Outcomes, pending: map[string]struct{}{}}
	if s.wait {
		if w.from, err = ends(ctx, cluster, w.topic); err != nil {
			return err
		}
	}
	p := newProducer(c.Kafka, t, topic)
	bar, sent := a.newProgress("sending", -1), 0
	err = send(ctx, p, events, func(step ...event) {
		bar.add(len(step))
		sent += len(step)
		if s.wait {
			for _, e := range step {
				w.pending[e.id] = struct{}{}
			}
		}
	})
	bar.end()
	if err := errors.Join(err, p.Close()); err != nil {
		return fmt.Errorf("%d event(s) were sent, then: %w", sent, err)
	}
	fmt.Fprintf(a.stderr, "%d event(s) sent to %s\n", sent, topic)
	if !s.wait || sent == 0 {
		return nil
	}
	return a.await(ctx, cluster, w, s)
}

// outcome is the data of an outcome event.
type outcome struct {
	Failures []struct {
		ID        string `json:"cmHandle"`
		Operation string `json:"operation"`
		Code      string `json:"errorCode"`
		Text      string `json:"errorText"`
		Details   string `json:"details"`
	} `json:"failures"`
	Succeeded int `json:"succeeded"`
}

// header is the value of a record's header, "" if it has none of that name.
func header(r *consumer.TailRecord, name string) string {
	for _, h := range r.Headers {
		if strings.EqualFold(h.Key, name) {
			return string(h.Value)
		}
	}
	return ""
}

// waiting are events whose outcomes have not come yet.
type waiting struct {
	topic   string
	from    []int64
	pending map[string]struct{}
}

// take reports whether a record is the outcome of one of the events.
func (w *waiting) take(r *consumer.TailRecord) bool {
	if header(r, "ce_causationsource") != eventSource {
		return false
	}
	id := header(r, "ce_causationid")
	_, ok := w.pending[id]
	delete(w.pending, id)
	return ok
}

// await follows the outcomes until all have come, and prints the failures.
func (a *app) await(ctx context.Context, cluster *consumer.Cluster, w *waiting, s sending) error {
	bar := a.newProgress("waiting", len(w.pending))
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errLate)
	defer cancel()
	var (
		failed    *table
		succeeded int
		failures  int
	)
	err := cluster.Follow(ctx, w.topic, w.from, func(r *consumer.TailRecord) (bool, error) {
		if !w.take(r) {
			return true, nil
		}
		bar.add(1)
		var o outcome
		if err := json.Unmarshal(r.Value, &o); err != nil {
			return false, fmt.Errorf("read an outcome: %w", err)
		}
		succeeded += o.Succeeded
		failures += len(o.Failures)
		if s.json {
			fmt.Fprintf(a.stdout, "%s\n", r.Value)
			return len(w.pending) > 0, nil
		}
		for _, f := range o.Failures {
			if failed == nil {
				failed = newTable(a.stdout, "CM HANDLE", "OPERATION", "CODE", "WHY")
			}
			failed.row(f.ID, f.Operation, f.Code, why(f.Text, f.Details))
		}
		return len(w.pending) > 0, nil
	})
	bar.end()
	if failed != nil {
		err = errors.Join(err, failed.flush())
	}
	fmt.Fprintf(a.stderr, "%d entries succeeded, %d failed\n", succeeded, failures)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
		err = cause
	}
	switch {
	case err != nil:
		return fmt.Errorf("%d outcome(s) are missing: %w", len(w.pending), err)
	case failures > 0:
		return &exitError{code: exitWrong}
	}
	return nil
}

var errLate = errors.New("they did not come in time; does a worker run?")
