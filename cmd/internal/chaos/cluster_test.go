//go:build kafka

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/cmd/internal/kafkaapache"
)

// threeBrokers are a cluster, the first of which is the controller. What was
// acknowledged stands on two of them at least.
type threeBrokers []*kafkaapache.Broker

func newThreeBrokers(w *world) broker {
	var c threeBrokers
	for node := 1; node <= 3; node++ {
		dir := filepath.Join(w.dir, fmt.Sprintf("kafka-%d", node))
		require.NoError(w, os.Mkdir(dir, 0o700))
		cfg := kafkaapache.Config{
			Dir: dir, Node: node,
			Properties: []string{
				"default.replication.factor=3", "min.insync.replicas=2", "unclean.leader.election.enable=false",
				"offsets.topic.replication.factor=3", "transaction.state.log.replication.factor=3", "transaction.state.log.min.isr=2",
				"replica.lag.time.max.ms=3000", "broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=500",
				"leader.imbalance.check.interval.seconds=5",
			},
		}
		if node > 1 {
			cfg.Join = c[0]
		}
		b, err := kafkaapache.Prepare(w.Context(), cfg)
		require.NoError(w, err)
		c = append(c, b)
	}
	return c
}

func (c threeBrokers) name() string { return fmt.Sprintf("Apache Kafka, %d brokers", len(c)) }

func (c threeBrokers) addr() string {
	var all []string
	for _, b := range c {
		all = append(all, b.Addr())
	}
	return strings.Join(all, ",")
}

func (c threeBrokers) start(ctx context.Context) error {
	for _, b := range c {
		if err := b.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c threeBrokers) stop(hard bool) error {
	var errs []error
	for _, b := range c {
		errs = append(errs, b.Stop(hard))
	}
	return errors.Join(errs...)
}

// Of three brokers each dies or is stopped in order and comes back; for a while two
// are away, and what is written reaches too few of them. Leaders move all the time:
// nothing is lost, doubled or out of order.
func TestKafkaOfThreeBrokers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{seed: 6, duration: time.Minute, rate: 150, session: 3 * time.Second, brokers: newThreeBrokers})
	brokers := w.kafka.(threeBrokers)
	w.both = w.direct
	enough := w.run(2)
	w.awaitAnswers(500)
	restart := func(hard bool, meanwhile func(), some ...*kafkaapache.Broker) {
		t.Helper()
		for _, b := range some {
			require.NoError(t, b.Stop(hard))
		}
		meanwhile()
		for _, b := range some {
			require.NoError(t, b.Start(t.Context()))
		}
		began := time.Now()
		w.awaitAnswers(300)
		t.Logf("300 outcomes came within %s of the brokers", time.Since(began))
	}
	othersLead := func() { w.awaitAnswers(200) }
	restart(false, othersLead, brokers[2])
	restart(true, othersLead, brokers[1])
	// The controller: while it is away no partition gets another leader.
	restart(true, func() { pause(t.Context(), 3*time.Second) }, brokers[0])
	// One replica of three takes nothing that has to stand on two.
	restart(true, func() { pause(t.Context(), 8*time.Second) }, brokers[1], brokers[2])
	enough()
	require.NoError(t, w.settle())
	for _, m := range w.slots {
		require.NoError(t, m.terminate())
	}
	w.slots = nil
	w.alive.Wait()
	require.NoError(t, w.verified())
	r := Check(w.collect())
	require.Empty(t, w.faults)
	require.True(t, r.OK(), "%+v\n%s", r, strings.Join(r.Faults, "\n"))
	t.Logf("%d records, %d events, %d effects, %d outcomes, %d dead letters, %d sent again", r.Records, r.Events, r.Effects, r.Outcomes, r.DeadLetters, r.Repeated)
}
