package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"ncmp-inventory/cmd/internal/load"
)

// DefaultPartitions of the bench's topics: as many as a busy topic should have.
const DefaultPartitions = 12

const (
	// pollEvery is how often the topic of the LCM events is asked for its end. It
	// is the resolution of the clock.
	pollEvery = 10 * time.Millisecond
	// patience is how long a system may do nothing before the run is given up.
	patience = time.Minute
)

// system is one database, its topics, and workers on both.
type system struct {
	s       *servers
	k       *kafkaServer
	url     string
	conn    *pgx.Conn // looks at the database beside the workers
	prefix  string    // of the topics
	workers []*workerProcess
	writer  *kafka.Writer
	told    int64 // LCM events on the topic by the end of the last slice
	// Started is how long the workers took from their start to readiness,
	// joining the group included.
	started time.Duration
}

// workerProcess is a worker and where it answers.
type workerProcess struct {
	*process
	ops, debug string // base URLs
}

func (y *system) registrations() string { return y.prefix + "registrations" }
func (y *system) stateChanges() string  { return y.prefix + "state-changes" }
func (y *system) lcmEvents() string     { return y.prefix + "events" }

func (y *system) topics() []string {
	all := []string{y.registrations(), y.stateChanges(), y.lcmEvents()}
	for _, name := range []string{"heartbeats", "inventory-events", "outcomes", "dead-letters"} {
		all = append(all, y.prefix+name)
	}
	return all
}

// startSystem makes a system on an empty database and waits for its workers.
func (s *servers) startSystem(ctx context.Context) (y *system, err error) {
	k, err := s.broker(ctx)
	if err != nil {
		return nil, err
	}
	y = &system{s: s, k: k}
	defer func() {
		if err != nil {
			err = errors.Join(err, y.close(ctx))
			y = nil
		}
	}()
	if y.url, err = s.createDatabase(ctx); err != nil {
		return y, err
	}
	y.prefix = fmt.Sprintf("ncmp-inventory-bench-%s-%d-", s.run, s.made)
	if err := k.createTopics(ctx, s.cfg.Partitions, y.topics()...); err != nil {
		return y, err
	}
	y.writer = &kafka.Writer{
		Addr: kafka.TCP(k.brokers...), Transport: k.client.Transport, Topic: "", Balancer: kafka.Murmur2Balancer{},
		RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond, BatchSize: 1000, BatchBytes: maxMessageBytes,
	}
	began := time.Now()
	for i := range s.cfg.Workers {
		w, err := y.startWorker(ctx, i+1)
		if err != nil {
			return y, err
		}
		y.workers = append(y.workers, w)
	}
	for _, w := range y.workers {
		if err := w.awaitReady(ctx); err != nil {
			return y, err
		}
	}
	y.started = time.Since(began)
	y.conn, err = s.connect(ctx, y.url)
	return y, err
}

// startWorker starts this program as a worker. The database's URL goes by file:
// a command line can be read by everybody.
func (y *system) startWorker(ctx context.Context, n int) (*workerProcess, error) {
	urlFile := filepath.Join(y.s.dir, "url-"+strings.TrimSuffix(y.prefix, "-"))
	if err := os.WriteFile(urlFile, []byte(y.url), 0o600); err != nil {
		return nil, err
	}
	name := "worker-" + strconv.Itoa(n)
	args := append([]string{"worker"}, y.s.cfg.WorkerFlags...)
	for _, f := range [][2]string{
		{"kafka.brokers", strings.Join(y.k.brokers, ",")},
		{"kafka.group", y.prefix + "group"},
		{"kafka.instance-id", ""},
		{"kafka.relay-id", ""},
		{"kafka.start", "earliest"},
		{"kafka.topics.registrations", y.registrations()},
		{"kafka.topics.state-changes", y.stateChanges()},
		{"kafka.topics.heartbeats", y.prefix + "heartbeats"},
		{"kafka.topics.lcm-events", y.lcmEvents()},
		{"kafka.topics.inventory-events", y.prefix + "inventory-events"},
		{"kafka.topics.outcomes", y.prefix + "outcomes"},
		{"kafka.topics.dead-letters", y.prefix + "dead-letters"},
		{"database.url-file", urlFile},
		{"database.migrate", "on"},
		{"database.max-connections", strconv.Itoa(y.s.cfg.Connections)},
		{"http.address", "127.0.0.1:0"},
		{"http.debug-address", "127.0.0.1:0"},
		{"log.format", "json"},
		{"log.level", "info"},
	} {
		args = append(args, "--"+f[0], f[1])
	}
	w := &workerProcess{}
	var once sync.Once
	listening := make(chan struct{})
	heard := func(line string) {
		var l struct{ Msg, Key, Address string }
		if json.Unmarshal([]byte(line), &l) != nil || l.Msg != "listening" {
			return
		}
		switch l.Key {
		case "http.address":
			w.ops = "http://" + l.Address
		case "http.debug-address":
			w.debug = "http://" + l.Address
		}
		if w.ops != "" && w.debug != "" {
			once.Do(func() { close(listening) })
		}
	}
	var err error
	if w.process, err = startProcess(name, y.s.program(args...), y.s.log, heard); err != nil {
		return nil, err
	}
	select {
	case <-listening:
		return w, nil
	case <-w.done:
		return nil, w.failure()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// awaitReady returns when the worker consumes.
func (w *workerProcess) awaitReady(ctx context.Context) error {
	var last string
	err := poll(ctx, func() (bool, error) {
		if err := w.failure(); err != nil {
			return false, err
		}
		text, code, err := w.get(ctx, "/readyz")
		last = text
		return err == nil && code == http.StatusOK, nil
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w: %s", w.name, err, last)
	}
	return nil
}

// operations asks workers; no connection outlives its request.
var operations = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (w *workerProcess) get(ctx context.Context, path string) (string, int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.ops+path, http.NoBody)
	if err != nil {
		return "", 0, err
	}
	res, err := operations.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return strings.TrimSpace(string(b)), res.StatusCode, err
}

// poll asks again and again until done says so, fails, or patience ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return fmt.Errorf("nothing after %s", patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// observed are the processes of the system.
func (y *system) observed() []observed {
	all := make([]observed, 0, len(y.workers)+3)
	for _, w := range y.workers {
		all = append(all, observed{name: w.name, pid: w.pid()})
	}
	all = append(all, y.s.observed("postgresql")...)
	if y.k.process != nil {
		all = append(all, observed{name: "broker", pid: y.k.process.pid()})
	}
	return append(all, self())
}

// messages encodes events for a topic.
func messages(topic string, events func(yield func(load.Event) bool)) []kafka.Message {
	var all []kafka.Message
	for e := range events {
		m := e.Message()
		m.Topic = topic
		all = append(all, m)
	}
	return all
}

// drive sends events and returns how long it took until so many LCM events
// stood on their topic.
func (y *system) drive(ctx context.Context, events []kafka.Message, lcm int) (time.Duration, error) {
	want := y.told + int64(lcm)
	began := time.Now()
	g, both := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := y.writer.WriteMessages(both, events...); err != nil {
			return fmt.Errorf("send events: %w", err)
		}
		return nil
	})
	var took time.Duration
	g.Go(func() error {
		for end := y.told; end < want; {
			before := end
			err := poll(both, func() (ok bool, err error) {
				for _, w := range y.workers {
					if err := w.failure(); err != nil {
						return false, err
					}
				}
				end, err = y.k.ends(both, y.lcmEvents(), y.s.cfg.Partitions)
				return end >= want || end > before, err
			})
			if err != nil {
				return fmt.Errorf("wait for %d LCM events, of which %d came: %w", lcm, end-y.told, err)
			}
		}
		took = time.Since(began)
		return nil
	})
	if err := g.Wait(); err != nil {
		return 0, err
	}
	y.told = want
	return took, y.settle(ctx)
}

const sqlWaiting = `select exists (select from ncmp_inventory.outbox)`

// settle waits until nothing is left to do, so that it costs nobody else.
func (y *system) settle(ctx context.Context) error {
	err := poll(ctx, func() (bool, error) {
		var waiting bool
		err := y.conn.QueryRow(ctx, sqlWaiting).Scan(&waiting)
		return !waiting, err
	})
	if err != nil {
		return fmt.Errorf("wait for the outbox to drain: %w", err)
	}
	end, err := y.k.ends(ctx, y.lcmEvents(), y.s.cfg.Partitions)
	if err == nil && end != y.told {
		// Another worker took over publishing, and sent the tail again.
		y.s.cfg.Progress(fmt.Sprintf("%d LCM events were sent twice: the last rate is a little too high", end-y.told))
		y.told = end
	}
	return err
}

// batches is what the workers' metrics say about their transactions.
type batches struct {
	count, records float64
	phases         map[string]float64 // seconds
}

// scrape adds up the metrics of all workers.
func (y *system) scrape(ctx context.Context) (batches, error) {
	b := batches{phases: map[string]float64{}}
	for _, w := range y.workers {
		text, _, err := w.get(ctx, "/metrics")
		if err != nil {
			return b, fmt.Errorf("read the metrics of %s: %w", w.name, err)
		}
		lines := bufio.NewScanner(strings.NewReader(text))
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				continue
			}
			switch name {
			case "ncmp_inventory_batch_records_count":
				b.count += v
			case "ncmp_inventory_batch_records_sum":
				b.records += v
			}
			if phase, ok := strings.CutPrefix(name, `ncmp_inventory_batch_phase_seconds_sum{phase="`); ok {
				b.phases[strings.TrimSuffix(phase, `"}`)] += v
			}
		}
	}
	return b, nil
}

// since is what was added after an earlier look.
func (b batches) since(earlier batches) batches {
	d := batches{count: b.count - earlier.count, records: b.records - earlier.records, phases: map[string]float64{}}
	for phase, v := range b.phases {
		d.phases[phase] = v - earlier.phases[phase]
	}
	return d
}

// size is how many records a transaction had on average.
func (b batches) size() int {
	if b.count == 0 {
		return 1
	}
	return max(1, int(b.records/b.count+0.5))
}

// close stops the workers and removes database and topics.
func (y *system) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	var errs []error
	for _, w := range y.workers {
		errs = append(errs, w.stop(ctx))
	}
	if y.writer != nil {
		errs = append(errs, y.writer.Close())
	}
	if y.conn != nil {
		errs = append(errs, y.conn.Close(ctx))
	}
	if y.prefix != "" {
		errs = append(errs, y.k.deleteTopics(ctx, y.topics()...))
	}
	if y.url != "" {
		errs = append(errs, y.s.dropDatabase(ctx, y.url))
	}
	return errors.Join(errs...)
}

// add counts another measurement in.
func (b *batches) add(more batches) {
	b.count += more.count
	b.records += more.records
	if b.phases == nil {
		b.phases = map[string]float64{}
	}
	for phase, v := range more.phases {
		b.phases[phase] += v
	}
}
