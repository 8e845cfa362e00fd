package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

const registrations = "ncmp-inventory-registrations"

// produce writes records to one partition of a topic.
func (s *system) produce(t *testing.T, topic string, partition int, records ...kafka.Record) {
	t.Helper()
	tr := &kafka.Transport{}
	defer tr.CloseIdleConnections()
	c := &kafka.Client{Addr: kafka.TCP(s.cfg.Kafka.Brokers...), Transport: tr}
	r, err := c.Produce(t.Context(), &kafka.ProduceRequest{
		Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(records...),
	})
	require.NoError(t, err)
	require.NoError(t, r.Error)
}

func garbage(n int) []kafka.Record {
	records := make([]kafka.Record, n)
	for i := range records {
		records[i] = kafka.Record{Key: kafka.NewBytes(fmt.Append(nil, "k", i)), Value: kafka.NewBytes([]byte("garbage"))}
	}
	return records
}

// cloudEvent is an input event in binary mode.
func cloudEvent(id, kind, key, data string, extra ...kafka.Header) kafka.Record {
	return kafka.Record{
		Key: kafka.NewBytes([]byte(key)), Value: kafka.NewBytes([]byte(data)),
		Headers: append([]kafka.Header{
			{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: []byte(id)}, {Key: "ce_source", Value: []byte("/test")},
			{Key: "ce_type", Value: []byte(kind)}, {Key: "content-type", Value: []byte("application/json")},
		}, extra...),
	}
}

func registrationOf(id string) kafka.Record {
	return cloudEvent("register-"+id, "org.onap.ncmp.inventory.registration.v1", id, `{"dmiPlugin":"http://dmi:1","createdCmHandles":[{"cmHandle":"`+id+`"}]}`)
}

// observe lets the worker log to a place where the test looks.
func observe(w *worker) *observer.ObservedLogs {
	core, logs := observer.New(zapcore.InfoLevel)
	w.log = zap.New(core)
	return logs
}

// requireHandle waits until a handle is stored.
func (s *system) requireHandle(t *testing.T, id string) {
	t.Helper()
	var got result
	require.Eventually(t, func() bool {
		got = s.run(t, "", "get", id)
		return got.code == exitDone
	}, patience, 50e6, "%s", &got.stderr)
}

func TestADeadLetterRunHaltsThePartitionUntilSomebodyDecides(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	s.cfg.DeadLetters.HaltAfter = 5
	var logs *observer.ObservedLogs
	s.start(t, func(w *worker) { logs = observe(w) })
	s.awaitReady(t)
	s.produce(t, registrations, 1, append(garbage(7), registrationOf("good"))...)
	s.produce(t, registrations, 0, registrationOf("neighbour"))

	halted := fmt.Sprintf(`ncmp_inventory_partition_halted{partition="1",topic=%q} `, registrations)
	s.await(t, "/metrics", func(_ int, body string) bool {
		return strings.Contains(body, halted+"1") && strings.Contains(body, `ncmp_inventory_halts_total{kind="dead-letters"} 1`) &&
			strings.Contains(body, `ncmp_inventory_dead_letters_total{reason="not-a-cloudevent"} 5`)
	})
	s.await(t, "/readyz", func(code int, body string) bool {
		return code == http.StatusServiceUnavailable && strings.Contains(body, "1 partition(s) are halted")
	})
	s.requireHandle(t, "neighbour")

	// The log names the command; it works as it stands.
	lines := logs.FilterMessageSnippet("partition halted").All()
	require.Len(t, lines, 1)
	require.Equal(t, zapcore.ErrorLevel, lines[0].Level)
	command, _ := lines[0].ContextMap()["to go on"].(string)
	require.Equal(t, "ncmp-inventory positions set "+registrations+" 1 OFFSET --dry-run", command)
	args := strings.Fields(strings.Replace(command, "OFFSET", "7", 1))[1:]
	got := s.run(t, "", args...)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Regexp(t, `skips 2 record\(s\), \d+ s +5 dead letters in a row`, got.stdout)
	require.Contains(t, got.stderr, "--execute does it")
	require.Contains(t, s.run(t, "", "positions").stdout, "halted: 5 dead letters in a row")
	require.Equal(t, exitWrong, s.run(t, "", "verify").code, "a halt is wrong")

	// To its own position: what follows is read, and the count begins anew.
	got = s.run(t, "", "positions", "set", registrations, "1", "--to-offset", "5", "--execute")
	require.Equal(t, exitDone, got.code, got.stderr)
	s.requireHandle(t, "good")
	s.awaitReady(t)
	s.await(t, "/metrics", func(_ int, body string) bool { return strings.Contains(body, halted+"0") })
	require.Len(t, logs.FilterMessage("partition goes on").All(), 1)
	require.Len(t, logs.FilterMessageSnippet("partition halted").All(), 1)
	require.Eventually(t, func() bool { return s.run(t, "", "verify").code == exitDone }, patience, 50e6)
}

func TestAHigherBoundEndsAHalt(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	s.cfg.DeadLetters.HaltAfter = 5
	stop := s.start(t)
	s.awaitReady(t)
	s.produce(t, registrations, 1, append(garbage(7), registrationOf("good"))...)
	s.await(t, "/readyz", func(_ int, body string) bool { return strings.Contains(body, "1 partition(s) are halted") })
	require.NoError(t, stop())
	stop = s.start(t)
	s.await(t, "/readyz", func(_ int, body string) bool { return strings.Contains(body, "1 partition(s) are halted") })
	require.NoError(t, stop())
	s.cfg.DeadLetters.HaltAfter = 0
	s.start(t)
	s.awaitReady(t)
	s.requireHandle(t, "good")
}

func TestAPositionIsNotMovedUnderAWorker(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	var logs *observer.ObservedLogs
	stop := s.start(t, func(w *worker) { logs = observe(w) })
	s.awaitReady(t)
	s.produce(t, registrations, 2, registrationOf("a"), registrationOf("b"), registrationOf("c"))
	s.requireHandle(t, "c")
	set := []string{"positions", "set", registrations, "2", "1"}
	got := s.run(t, "", append(set, "--dry-run", "--json")...)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stderr, "--execute needs --force")
	var m moving
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &m))
	require.Equal(t, []int64{3, 1, 0, 2}, []int64{m.From, m.To, m.Skipped, m.Again})
	require.NotEmpty(t, m.Holder)
	got = s.run(t, "", append(set, "--execute")...)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "holds the partition")

	// With force the worker loses its claim, and reads again from there.
	got = s.run(t, "", append(set, "--execute", "--force")...)
	require.Equal(t, exitDone, got.code, got.stderr)
	s.produce(t, registrations, 2, registrationOf("d"))
	s.requireHandle(t, "d")
	s.await(t, "/metrics", func(_ int, body string) bool {
		return strings.Contains(body, `ncmp_inventory_handle_operations_total{operation="create",result="ok"} 6`)
	})
	require.Empty(t, logs.FilterMessageSnippet("halted").All(), "a move that was meant is no alarm")
	require.NoError(t, stop())

	// Nobody holds it now.
	got = s.run(t, "", "positions", "set", registrations, "2", "--to-earliest", "--execute")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stdout, "reads 4 record(s) again")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"nowhere", "0", "1", "--dry-run"}, "none of the input topics"},
		{[]string{registrations, "9", "0", "--dry-run"}, "no partition 9"},
		{[]string{registrations, "2", "99", "--dry-run"}, "holds offsets 0 to 4"},
		{[]string{registrations, "2", "1"}, "--dry-run"},
		{[]string{registrations, "2", "1", "--dry-run", "--execute"}, "--dry-run"},
		{[]string{registrations, "2", "--dry-run"}, "give one of OFFSET"},
		{[]string{registrations, "2", "1", "--to-latest", "--dry-run"}, "give one of OFFSET"},
		{[]string{registrations, "2", "--to-time", "yesterday", "--dry-run"}, "--to-time yesterday"},
		{[]string{registrations, "x", "1", "--dry-run"}, `partition "x"`},
	} {
		got := s.run(t, "", append([]string{"positions", "set"}, c.args...)...)
		require.Equal(t, exitUsage, got.code, "%v: %s", c.args, got.stderr)
		require.Contains(t, got.stderr, c.want)
	}
	got = s.run(t, "", "positions", "set", registrations, "2", "--to-time", "1h", "--dry-run")
	require.Contains(t, got.stdout, "skips nothing and reads nothing again", got.stderr)
	got = s.run(t, "", "positions", "set", registrations, "2", "--to-latest", "--dry-run")
	require.Contains(t, got.stdout, "skips 4 record(s)", got.stderr)
}

// Every halt that waits for a decision ends by one.
func TestPositionsSetResolvesEveryHalt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(*testing.T, *system)
		kind string
		to   []string
	}{
		"records gone to retention": {func(t *testing.T, s *system) {
			s.produce(t, registrations, 0, garbage(3)...)
			s.deleteRecords(t, registrations, 0, 3)
		}, "gap", []string{"--to-earliest"}},
		"a log that is shorter than the position": {func(t *testing.T, s *system) {
			s.sql(t, `update ncmp_inventory.position set next_offset = 99 where topic = $1 and partition = 0`, registrations)
		}, "truncated", []string{"--to-latest"}},
		"a topic created anew": {func(t *testing.T, s *system) {
			require.NoError(t, s.broker.DeleteTopic(registrations))
			require.NoError(t, s.broker.CreateTopic(registrations, 3, nil))
		}, "recreated", []string{"0"}},
		"a database that went back": {func(t *testing.T, s *system) {
			s.sql(t, `update ncmp_inventory.position set next_offset = 0 where topic = $1 and partition = 0`, registrations)
		}, "rewound", []string{"1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t, true)
			stop := s.start(t)
			s.awaitReady(t)
			s.produce(t, registrations, 0, registrationOf("before"))
			s.requireHandle(t, "before")
			require.NoError(t, stop())
			c.harm(t, s)
			s.start(t)
			s.await(t, "/metrics", func(_ int, body string) bool {
				return strings.Contains(body, fmt.Sprintf("ncmp_inventory_partition_halted{partition=\"0\",topic=%q} 1", registrations)) &&
					strings.Contains(body, fmt.Sprintf("ncmp_inventory_halts_total{kind=%q} ", c.kind)) &&
					!strings.Contains(body, fmt.Sprintf("ncmp_inventory_halts_total{kind=%q} 0", c.kind))
			})
			partitions := 1
			if c.kind == "recreated" {
				partitions = 3
			}
			for p := range partitions {
				set := append([]string{"positions", "set", registrations, fmt.Sprint(p)}, c.to...)
				got := s.run(t, "", append(set, "--dry-run")...)
				require.Equal(t, exitDone, got.code, got.stderr)
				got = s.run(t, "", append(set, "--execute")...)
				require.Equal(t, exitDone, got.code, got.stderr)
			}
			s.awaitReady(t)
			s.produce(t, registrations, 0, registrationOf("after"))
			s.requireHandle(t, "after")
			require.NotContains(t, s.run(t, "", "positions").stdout, "halted")
		})
	}
}

// sql changes the worker's own tables.
func (s *system) sql(t *testing.T, text string, args ...any) {
	t.Helper()
	pool := s.db.Pool(t)
	defer pool.Close()
	_, err := pool.Exec(t.Context(), text, args...)
	require.NoError(t, err)
}

// deleteRecords moves the start of a partition's log, as retention does.
func (s *system) deleteRecords(t *testing.T, topic string, partition int32, before int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.cfg.Kafka.Brokers...))
	require.NoError(t, err)
	defer cl.Close()
	req := kmsg.NewPtrDeleteRecordsRequest()
	rt, rp := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	rt.Topic, rp.Partition, rp.Offset = topic, partition, before
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	res, err := cl.Request(t.Context(), req)
	require.NoError(t, err)
	require.Zero(t, res.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0].ErrorCode)
}
