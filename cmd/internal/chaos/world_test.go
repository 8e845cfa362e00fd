package chaos

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ncmp-inventory/store/pgembed"
)

const (
	topicRegistrations = "ncmp-inventory-registrations"
	topicStates        = "ncmp-inventory-state-changes"
	topicBeats         = "dmi-device-heartbeat"
	topicLCM           = "ncmp-events"
	topicInventory     = "ncmp-inventory-events"
	topicOutcomes      = "ncmp-inventory-outcomes"
	topicDeadLetters   = "ncmp-inventory-dead-letters"

	outputPartitions = 3
)

// patience bounds how long something may take that has to happen: it is there
// for what hangs, not for what is slow.
const patience = 4 * time.Minute

// options say what a run is.
type options struct {
	seed     uint64
	duration time.Duration // how long faults are injected
	rate     int           // records in a second
	apache   bool
	session  time.Duration
	workers  int
	quiet    time.Duration // the longest time without a fault
	only     string        // part of the names of the faults to inject
	patience time.Duration // how long the workers may take to finish in the end
	// anew says that the input topics are deleted and created anew before the run,
	// by workers that may go on with what there is.
	anew bool
	// brokers makes other brokers than the one behind the proxy.
	brokers func(w *world) broker
	// overlay, if not "", names a file that replaces sources of the program.
	overlay string
}

// world is the servers, networks and workers of a run.
type world struct {
	*testing.T
	options
	dir     string
	program string

	kafka           broker
	proxy           *kafkaProxy
	bootstrap       string // what workers are told of Kafka
	postgres        *pgembed.Server
	pgProxy         *pgProxy
	direct, proxied string // URLs
	both            string // that of both servers, where there are two

	producer *producer
	watch    *watch

	// slots are the workers of the first lane of faults, which alone starts
	// and ends them.
	slots  []*member
	people int
	alive  sync.WaitGroup
	// outages counts begins and ends of outages: odd is during one.
	outages atomic.Int64
	// late are topics that are made while workers need them.
	late []string

	mu       sync.Mutex
	faults   []string // what went wrong that no checker sees
	stops    []time.Duration
	injected []injected
}

// fault notes what must not happen.
func (w *world) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (w *world) stopped(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stops = append(w.stops, took)
}

// newWorld starts the servers.
func newWorld(t *testing.T, o options) *world {
	t.Helper()
	w := &world{T: t, options: o}
	if w.patience == 0 {
		w.patience = patience
	}
	var err error
	w.dir, err = os.MkdirTemp("", "chaos-") //nolint:usetesting // PostgreSQL's user cannot enter t.TempDir, and logs outlive a failure
	require.NoError(t, err)
	require.NoError(t, os.Chmod(w.dir, 0o711))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs are in %s", w.dir)
			return
		}
		require.NoError(t, os.RemoveAll(w.dir))
	})
	w.build()

	w.postgres = w.startPostgres("postgres", nil)
	w.direct = w.postgres.URL("postgres")
	w.pgProxy, w.proxied = startPGProxy(t, w.direct)

	w.proxy = startKafkaProxy(t)
	w.bootstrap = w.proxy.addr()
	switch {
	case w.brokers != nil:
		w.kafka = w.brokers(w)
	case w.apache:
		w.kafka = newApache(t, w.dir, w.proxy.addr())
	default:
		w.proxy.linger = 20 * time.Second
		w.kafka = &embedded{dir: filepath.Join(w.dir, "kafka"), told: w.proxy.addr()}
	}
	require.NoError(t, w.kafka.start(t.Context()))
	t.Cleanup(func() { require.NoError(t, w.kafka.stop(true)) })
	if w.brokers != nil {
		w.bootstrap = w.kafka.addr()
	} else {
		w.proxy.lead(w.kafka.addr())
	}

	homes := w.homes()
	count := map[string]int{}
	for _, h := range homes {
		if h.From == 0 {
			count[h.Topic]++
		}
	}
	admin := w.client()
	for topic, n := range count {
		require.NoError(t, createTopic(t.Context(), admin, topic, n))
	}
	for _, topic := range []string{topicLCM, topicOutcomes, topicDeadLetters} {
		require.NoError(t, createTopic(t.Context(), admin, topic, outputPartitions))
	}
	w.late = []string{topicInventory}
	w.producer = newProducer(w, NewStream(o.seed, homes))
	w.watch = newWatch(w)
	t.Cleanup(func() {
		for _, m := range w.slots {
			if err := m.kill(); err != nil {
				t.Error(err)
			}
		}
		w.alive.Wait()
	})
	return w
}

// startPostgres starts a server on a directory of the run, which may be there.
func (w *world) startPostgres(dir string, extra map[string]string) *pgembed.Server {
	w.Helper()
	params := map[string]string{
		"fsync": "off", "full_page_writes": "off", // the machine itself does not fail here
		"max_connections": "200", "shared_buffers": "128MB", "max_wal_size": "2GB", "jit": "off",
		"tcp_user_timeout": "3s", "log_min_messages": "fatal",
	}
	maps.Copy(params, extra)
	s, err := pgembed.Start(w.Context(), pgembed.Config{DataDir: filepath.Join(w.dir, dir), Params: params})
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, s.Stop(context.Background())) })
	return s
}

// homes are the input partitions, one of them added after a third of the run.
func (w *world) homes() []Home {
	third := w.rate * int(w.duration/time.Second) / 3
	return []Home{
		{Topic: topicRegistrations, Partition: 0, Shares: true}, {Topic: topicRegistrations, Partition: 1, Shares: true},
		{Topic: topicRegistrations, Partition: 2}, {Topic: topicRegistrations, Partition: 3, From: max(third, 1)},
		{Topic: topicStates, Partition: 0, Shares: true}, {Topic: topicStates, Partition: 1, Shares: true}, {Topic: topicStates, Partition: 2},
		{Topic: topicBeats, Partition: 0, Heartbeats: true},
	}
}

func createTopic(ctx context.Context, c *kgo.Client, name string, partitions int) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, int32(partitions), -1
	req.Topics = append(req.Topics, topic)
	res, err := req.RequestWith(ctx, c)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	if err := kerr.ErrorForCode(res.Topics[0].ErrorCode); err != nil && err != kerr.TopicAlreadyExists { //nolint:errorlint // kerr's are values
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

// settle heals everything and waits until all input is applied and published.
func (w *world) settle() error {
	admin := w.client()
	ctx, cancel := context.WithTimeout(w.Context(), w.patience)
	defer cancel()
	for _, topic := range w.late {
		if err := createTopic(ctx, admin, topic, outputPartitions); err != nil {
			return err
		}
	}
	if err := w.producer.flush(ctx); err != nil {
		return err
	}
	return w.reach(ctx, w.producer.ends())
}

// reach waits until the stored positions are there, and all is published.
func (w *world) reach(ctx context.Context, ends map[source]int64) error {
	conn, err := pgx.Connect(ctx, w.direct)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	for {
		missing := left(ctx, conn, ends)
		if missing == "" {
			return nil
		}
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			return fmt.Errorf("the workers did not finish: %s", missing)
		}
	}
}

// left says what is still to be done, "" if nothing is.
func left(ctx context.Context, conn *pgx.Conn, ends map[source]int64) string {
	// What was set aside because a topic took no large messages can go now.
	_, err := conn.Exec(ctx, `update ncmp_inventory.outbox set parked = null where parked is not null`)
	if err != nil {
		return err.Error()
	}
	// A topic that was created anew has positions under both of its ids: the newer counts.
	rows, err := conn.Query(ctx, `select topic, partition, next_offset from ncmp_inventory.position order by updated`)
	if err != nil {
		return err.Error()
	}
	at := map[source]int64{}
	var h source
	var next int64
	if _, err := pgx.ForEachRow(rows, []any{&h.topic, &h.partition, &next}, func() error { at[h] = next; return nil }); err != nil {
		return err.Error()
	}
	for h, end := range ends {
		if at[h] < end {
			return fmt.Sprintf("%s/%d is at %d of %d", h.topic, h.partition, at[h], end)
		}
	}
	var waiting int
	if err := conn.QueryRow(ctx, `select count(*) from ncmp_inventory.outbox`).Scan(&waiting); err != nil {
		return err.Error()
	}
	if waiting > 0 {
		return fmt.Sprintf("%d messages are not published", waiting)
	}
	return ""
}
