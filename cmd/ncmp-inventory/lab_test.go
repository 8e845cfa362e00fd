package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"ncmp-inventory/cmd/internal/kafkaembed"
	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/cmd/internal/proof"
	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/inventory"
	"ncmp-inventory/store/storetest"
)

// runAsProgram makes the test binary the program, see TestMain: then workers
// can be processes of their own, to be killed.
const runAsProgram = "TEST_RUN_AS_PROGRAM"

// patience is how long a test waits for the next thing to happen before it says
// that nothing does. It bounds hanging, not speed.
const patience = 2 * time.Minute

// lab is a broker, a database and topics of one test.
type lab struct {
	*testing.T
	brokers []string
	// broker and embedded are those of a broker inside the test.
	broker   *kafkaembed.Broker
	embedded kafkaembed.Config
	db       *storetest.DB
	config   config.Config
}

// newLab makes a lab with a broker inside the test.
func newLab(t *testing.T, db *storetest.DB, partitions int) *lab {
	t.Helper()
	l := &lab{T: t, db: db, config: config.Defaults()}
	topics := map[string]int{}
	for _, name := range allTopics(l.config.Kafka.Topics) {
		topics[name] = partitions
	}
	l.embedded = kafkaembed.Config{DataDir: t.TempDir(), Topics: topics, MaxMessageBytes: 8 << 20}
	b, err := kafkaembed.Start(t.Context(), l.embedded)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.broker.Close()) })
	l.broker, l.brokers = b, b.Addrs()
	l.configure()
	return l
}

func (l *lab) configure() {
	l.config.Kafka.Brokers = l.brokers
	l.config.Database.URL = config.SecretOf(l.db.URL)
	// Killed workers are missed soon.
	l.config.Kafka.SessionTimeout = 3 * time.Second
	l.config.Kafka.HeartbeatInterval = 200 * time.Millisecond
	l.config.HTTP.Address = ""
}

func allTopics(t config.Topics) []string {
	return append(t.Inputs(), t.LCMEvents, t.InventoryEvents, t.Outcomes, t.DeadLetters)
}

// flags are the lab's configuration as a command line.
func (l *lab) flags() []string {
	k, t := l.config.Kafka, l.config.Kafka.Topics
	return []string{
		"--kafka.brokers", strings.Join(k.Brokers, ","), "--database.url", l.db.URL,
		"--kafka.group", k.Group,
		"--kafka.session-timeout", k.SessionTimeout.String(), "--kafka.heartbeat-interval", k.HeartbeatInterval.String(),
		"--kafka.topics.registrations", strings.Join(t.Registrations, ","),
		"--kafka.topics.state-changes", strings.Join(t.StateChanges, ","),
		"--kafka.topics.heartbeats", strings.Join(t.Heartbeats, ","),
		"--kafka.topics.lcm-events", t.LCMEvents, "--kafka.topics.inventory-events", t.InventoryEvents,
		"--kafka.topics.outcomes", t.Outcomes, "--kafka.topics.dead-letters", t.DeadLetters,
		"--http.address", "off",
	}
}

// process is a worker process.
type process struct {
	lab   *lab
	name  string
	cmd   *exec.Cmd
	said  *said
	ended chan struct{} // closed when it has, err is set before
	err   error
}

// said is what a process wrote, to be read while it writes.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// startWorker starts a worker process. What it says is shown if the test fails.
func (l *lab) startWorker(name string, flags ...string) *process {
	l.Helper()
	p := &process{lab: l, name: name, said: &said{more: make(chan struct{}, 1)}, ended: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], slices.Concat([]string{"worker"}, l.flags(), flags)...)
	p.cmd.Env = append(os.Environ(), runAsProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	require.NoError(l, p.cmd.Start())
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	l.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
		if l.Failed() {
			text := p.said.String()
			l.Logf("worker %s said:\n%s", name, text[max(0, len(text)-20_000):])
		}
	})
	return p
}

// awaitLine returns when the process has said something that contains text.
func (p *process) awaitLine(text string) {
	p.lab.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !strings.Contains(p.said.String(), text) {
		select {
		case <-p.said.more:
		case <-p.ended:
			require.Fail(p.lab, "worker "+p.name+" ended", "%v", p.err)
		case <-deadline.C:
			require.Fail(p.lab, "worker "+p.name+" did not say "+text)
		}
	}
}

// kill ends the process as a crash does.
func (p *process) kill() {
	p.lab.Helper()
	require.NoError(p.lab, p.cmd.Process.Kill())
	<-p.ended
	require.ErrorContains(p.lab, p.err, "killed")
}

// terminate asks for a clean end, which has to come with exit code 0.
func (p *process) terminate() {
	p.lab.Helper()
	require.NoError(p.lab, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.ended:
		require.NoError(p.lab, p.err, "worker %s", p.name)
	case <-time.After(patience):
		require.Fail(p.lab, "worker "+p.name+" did not end")
	}
}

// background runs f beside the test until the test's end, or the returned stop.
func (l *lab) background(f func(ctx context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { return f(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(l, g.Wait())
	})
	l.Cleanup(stop)
	return stop
}

// standIn reads the LCM events, keeps account, and answers creations with READY.
func (l *lab) standIn() *standIn {
	t := l.config.Kafka.Topics
	s := newStandIn(l.brokers, t.LCMEvents, t.StateChanges[0])
	l.background(s.Run)
	return s
}

// restartBroker stops the broker and starts it again where it was.
func (l *lab) restartBroker() {
	l.Helper()
	_, port, err := net.SplitHostPort(l.brokers[0])
	require.NoError(l, err)
	n, err := strconv.Atoi(port)
	require.NoError(l, err)
	l.embedded.Ports = []int{n}
	require.NoError(l, l.broker.Close())
	b, err := kafkaembed.Start(l.Context(), l.embedded)
	require.NoError(l, err)
	l.broker = b
}

// requireVerified lets the program look for anything wrong.
func (l *lab) requireVerified() {
	l.Helper()
	r := runCommand(l.T, "", append([]string{"verify"}, l.flags()...)...)
	require.Zero(l, r.code, "%s\n%s", r.stdout, r.stderr)
}

// send writes events to the registrations and waits for the broker.
func (l *lab) send(events func(yield func(load.Event) bool)) {
	l.Helper()
	w := load.Writer(l.brokers, l.config.Kafka.Topics.Registrations[0])
	require.NoError(l, load.Send(l.Context(), w, events, nil))
	require.NoError(l, load.Close(w))
}

// awaitFact returns when n events told a fact.
func (l *lab) awaitFact(s *standIn, f proof.Fact, n int) {
	l.Helper()
	require.NoError(l, s.await(l.Context(), patience, func() bool { return s.count(f) >= n }), "%d of %d %s", s.count(f), n, f)
}

// topic is all that stands on a topic now, by partition.
func (l *lab) topic(name string) []kafka.Message {
	l.Helper()
	ends, err := proof.Ends(l.Context(), l.brokers, name)
	require.NoError(l, err)
	left := map[int]bool{}
	for p, end := range ends {
		if end > 0 {
			left[p] = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	var all []kafka.Message
	require.NoError(l, proof.Follow(ctx, l.brokers, name, func(m *kafka.Message) error {
		all = append(all, *m)
		if m.Offset+1 >= ends[m.Partition] {
			delete(left, m.Partition)
		}
		if len(left) == 0 {
			cancel()
		}
		return nil
	}))
	require.Empty(l, left, "the end of %s was read", name)
	return all
}

// header is a record's header, "" if it has none of that name.
func headerOf(m *kafka.Message, name string) string {
	for _, h := range m.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// awaitNothingWaits returns when the outbox is empty.
func (l *lab) awaitNothingWaits() {
	l.Helper()
	pool := l.db.Pool(l)
	require.Eventually(l, func() bool {
		var waiting bool
		err := pool.QueryRow(l.Context(), "select exists (select from ncmp_inventory.outbox)").Scan(&waiting)
		return err == nil && !waiting
	}, patience, 20*time.Millisecond)
	pool.Close()
}

// handleRows are the rows that one CM handle of a load has in state READY, made
// from CPS's documentation and not by the product. Times are left out.
func handleRows(h load.Handle, dmi, producer, system string) map[string]map[string]any {
	root := "/dmi-registry/cm-handles[@id='" + h.ID + "']"
	rows := map[string]map[string]any{
		root: {
			"id": h.ID, "alternate-id": h.AlternateID, "module-set-tag": h.ModuleSetTag,
			"data-producer-identifier": producer, "dmi-service-name": dmi,
		},
		root + "/state":                        {"cm-handle-state": string(inventory.Ready), "data-sync-enabled": false},
		root + "/state/datastores":             {},
		root + "/state/datastores/operational": {"sync-state": inventory.NoneRequested},
	}
	list := func(step string, values map[string]string) {
		for name, value := range values {
			rows[fmt.Sprintf("%s/%s[@name='%s']", root, step, name)] = map[string]any{"name": name, "value": value}
		}
	}
	list("public-properties", map[string]string{"systemId": h.Public.SystemID, "systemName": system})
	p := h.Private
	list("additional-properties", map[string]string{
		"segmentId": p.SegmentID, "networkSegment": p.NetworkSegment, "deviceIdentifier": p.DeviceIdentifier,
		"hardwareVersion": p.HardwareVersion, "softwareVersion": p.SoftwareVersion,
		"syncStatus": p.SyncStatus, "nodeCategory": p.NodeCategory,
	})
	return rows
}

// requireRows holds the fragment table against what should be there.
func (l *lab) requireRows(want map[string]map[string]any) {
	l.Helper()
	got := map[string]map[string]any{}
	for _, r := range l.db.Rows(l) {
		if r.Anchor != "ncmp-dmi-registry" || r.XPath == "/dmi-registry" {
			continue
		}
		// No name or id of a load holds a slash.
		require.Equal(l, r.XPath[:strings.LastIndex(r.XPath, "/")], r.Parent, "parent of %s", r.XPath)
		attributes := map[string]any{}
		require.NoError(l, unmarshal(r.Attributes, &attributes))
		delete(attributes, "last-update-time")
		for name, value := range attributes {
			if strings.HasPrefix(name, "dmi-") && value == "" {
				delete(attributes, name)
			}
		}
		got[r.XPath] = attributes
	}
	for _, xpath := range slices.Sorted(maps.Keys(want)) {
		require.Equal(l, want[xpath], got[xpath], xpath)
		delete(got, xpath)
	}
	require.Empty(l, got, "rows that nobody asked for")
}
