package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ncmp-inventory/store/pgembed"
)

func onApache(w *world) bool   { return w.apache }
func onEmbedded(w *world) bool { return !w.apache }

// ofServers are the faults of the second lane: servers and networks.
var ofServers = []fault{
	{kind: "PostgreSQL crashed", outage: true, away: true, run: func(_ context.Context, w *world, _ *rand.Rand) error {
		return w.postgres.Restart(context.Background(), pgembed.Immediate)
	}},
	{kind: "PostgreSQL away", outage: true, away: true, run: func(ctx context.Context, w *world, r *rand.Rand) error {
		mode := []pgembed.Mode{pgembed.Fast, pgembed.Immediate}[r.IntN(2)]
		lasts := w.between(r, 5*time.Second, time.Minute)
		if err := w.postgres.Halt(context.Background(), mode); err != nil {
			return err
		}
		pause(ctx, lasts)
		return w.postgres.Restart(context.Background(), pgembed.Fast)
	}},
	{kind: "answer to COMMIT lost", outage: true, run: func(ctx context.Context, w *world, r *rand.Rand) error {
		w.pgProxy.answers.Store(1 + r.Int64N(5))
		pause(ctx, w.between(r, 2*time.Second, 6*time.Second))
		w.pgProxy.answers.Store(0)
		return nil
	}},
	{kind: "COMMIT lost", outage: true, run: func(ctx context.Context, w *world, r *rand.Rand) error {
		w.pgProxy.commits.Store(1 + r.Int64N(5))
		pause(ctx, w.between(r, 2*time.Second, 6*time.Second))
		w.pgProxy.commits.Store(0)
		return nil
	}},
	{kind: "connections to PostgreSQL cut", outage: true, run: func(ctx context.Context, w *world, r *rand.Rand) error {
		for range 1 + r.IntN(3) {
			w.pgProxy.cut()
			pause(ctx, w.between(r, 100*time.Millisecond, time.Second))
		}
		return nil
	}},
	{kind: "PostgreSQL read-only", outage: true, away: true, run: func(ctx context.Context, w *world, r *rand.Rand) error {
		lasts := w.between(r, 3*time.Second, 15*time.Second)
		if err := w.sql("alter system set default_transaction_read_only = on", "select pg_reload_conf()"); err != nil {
			return err
		}
		pause(ctx, lasts)
		return w.sql("set session characteristics as transaction read write", "alter system reset default_transaction_read_only", "select pg_reload_conf()")
	}},
	{kind: "PostgreSQL refuses: disk full and the like", outage: true, away: true, run: func(ctx context.Context, w *world, r *rand.Rand) error {
		code := []string{"53100", "53200", "53300", "58030", "40001", "40P01", "55P03", "57P03", "25P03"}[r.IntN(9)]
		lasts := w.between(r, 3*time.Second, 15*time.Second)
		if err := w.sql(fmt.Sprintf(refuse, code)); err != nil {
			return err
		}
		pause(ctx, lasts)
		return w.sql(`drop function if exists public.chaos() cascade`)
	}},
	{kind: "broker restarted", outage: true, away: true, run: func(_ context.Context, w *world, r *rand.Rand) error {
		return w.restartBroker(r.IntN(2) == 0, func() {})
	}},
	{kind: "broker away", outage: true, away: true, run: func(ctx context.Context, w *world, r *rand.Rand) error {
		lasts := w.between(r, 5*time.Second, time.Minute)
		return w.restartBroker(r.IntN(2) == 0, func() { pause(ctx, lasts) })
	}},
	{kind: "connections to the broker cut", outage: true, run: func(ctx context.Context, w *world, r *rand.Rand) error {
		for range 1 + r.IntN(4) {
			w.proxy.cut()
			pause(ctx, w.between(r, 50*time.Millisecond, time.Second))
		}
		return nil
	}},
	{kind: "broker slow", outage: true, run: func(ctx context.Context, w *world, r *rand.Rand) error {
		by, lasts := w.between(r, 100*time.Millisecond, time.Second), w.between(r, 4*time.Second, 12*time.Second)
		w.proxy.slow(by)
		pause(ctx, lasts)
		w.proxy.slow(0)
		return nil
	}},
	// The quota is far below what comes in: the broker does not listen to a connection
	// for as long as what went over it should have taken.
	{kind: "broker throttles", outage: true, away: true, only: onApache, run: func(ctx context.Context, w *world, r *rand.Rand) error {
		lasts := w.between(r, 5*time.Second, 15*time.Second)
		if err := w.quota(20_000); err != nil {
			return err
		}
		pause(ctx, lasts)
		return w.quota(0)
	}},
	{kind: "broker refuses", outage: true, only: onEmbedded, run: func(ctx context.Context, w *world, r *rand.Rand) error {
		errs := []*kerr.Error{kerr.NotLeaderForPartition, kerr.LeaderNotAvailable, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.KafkaStorageError}
		keys := []kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.OffsetCommit, kmsg.Heartbeat, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.ListOffsets, kmsg.InitProducerID}
		cluster := w.kafka.(*embedded).cluster
		var handles []*kfake.FaultHandle
		for range 2 + r.IntN(4) {
			handles = append(handles, cluster.Fault(kfake.Fault{Keys: []kmsg.Key{keys[r.IntN(len(keys))]}, Err: errs[r.IntN(len(errs))], Count: 1 + r.IntN(20)}))
		}
		pause(ctx, w.between(r, 2*time.Second, 8*time.Second))
		for _, h := range handles {
			h.Remove()
		}
		return nil
	}},
	{kind: "dead letters too large for their topic", run: func(ctx context.Context, w *world, r *rand.Rand) error {
		lasts := w.between(r, 5*time.Second, 15*time.Second)
		if err := w.limit(topicDeadLetters, "200"); err != nil {
			return err
		}
		pause(ctx, lasts)
		return w.limit(topicDeadLetters, "1048588")
	}},
	{kind: "output topic missing until now", only: func(w *world) bool { return len(w.late) > 0 }, run: func(_ context.Context, w *world, _ *rand.Rand) error {
		for _, topic := range w.late {
			if err := createTopic(context.Background(), w.client(), topic, outputPartitions); err != nil {
				return err
			}
		}
		w.late = nil
		return nil
	}},
}

// refuse lets every insert into the outbox fail, once there is one.
const refuse = `do $do$ begin
	if to_regclass('ncmp_inventory.outbox') is not null then
		create function public.chaos() returns trigger language plpgsql as $$
			begin raise exception 'refused' using errcode = '%s'; end $$;
		create trigger chaos before insert on ncmp_inventory.outbox for each statement execute function public.chaos();
	end if;
end $do$`

// sql runs statements on a connection that no proxy sees.
func (w *world) sql(statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.direct)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// restartBroker stops the broker, lets something pass, and starts it again.
func (w *world) restartBroker(hard bool, meanwhile func()) error {
	if err := w.kafka.stop(hard); err != nil {
		return err
	}
	w.proxy.cut()
	meanwhile()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return w.kafka.start(ctx)
}

// limit sets max.message.bytes of a topic.
func (w *world) limit(topic, bytes string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "max.message.bytes", &bytes
	resource.Configs = append(resource.Configs, config)
	req.Resources = append(req.Resources, resource)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := req.RequestWith(ctx, w.client())
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(res.Resources[0].ErrorCode)
}

// quota sets how many bytes a client may produce and fetch in a second; 0 is any
// number.
func (w *world) quota(bytes float64) error {
	req := kmsg.NewPtrAlterClientQuotasRequest()
	entry := kmsg.NewAlterClientQuotasRequestEntry()
	entity := kmsg.NewAlterClientQuotasRequestEntryEntity()
	entity.Type = "client-id" // the default of all
	entry.Entity = append(entry.Entity, entity)
	for _, key := range []string{"producer_byte_rate", "consumer_byte_rate"} {
		op := kmsg.NewAlterClientQuotasRequestEntryOp()
		op.Key, op.Value, op.Remove = key, bytes, bytes == 0
		entry.Ops = append(entry.Ops, op)
	}
	req.Entries = append(req.Entries, entry)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := req.RequestWith(ctx, w.client())
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range res.Entries {
		errs = append(errs, kerr.ErrorForCode(e.ErrorCode))
	}
	return errors.Join(errs...)
}
