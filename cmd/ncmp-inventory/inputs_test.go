package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/consumer"
	"ncmp-inventory/store/storetest"
)

// say sends one event in binary mode to a topic.
func (l *lab) say(topic, key, id, ceType, data string) {
	l.Helper()
	m := kafka.Message{Key: []byte(key), Value: []byte(data)}
	for _, h := range [][2]string{{"ce_specversion", "1.0"}, {"ce_id", id}, {"ce_source", "/test"}, {"ce_type", ceType}, {"content-type", "application/json"}} {
		m.Headers = append(m.Headers, kafka.Header{Key: h[0], Value: []byte(h[1])})
	}
	w := load.Writer(l.brokers, topic)
	require.NoError(l, w.WriteMessages(l.Context(), m))
	require.NoError(l, load.Close(w))
}

// The type of an event decides what it is, not the topic that it came on. Only
// on the heartbeats topic a type that is nobody's is a heartbeat.
func TestAnyInputTopicCarriesAnyType(t *testing.T) {
	t.Parallel()
	l := newLab(t, storetest.OpenEmpty(t), 1)
	topics := l.config.Kafka.Topics
	registrations, states, heartbeats := topics.Registrations[0], topics.StateChanges[0], topics.Heartbeats[0]
	const foreign = "com.example.device.alive"
	w := l.startWorker("worker")
	w.awaitLine(`"started"`)

	l.say(heartbeats, "a", "e-1", consumer.TypeRegistration, `{"createdCmHandles":[{"cmHandle":"a"}]}`)
	require.Equal(t, "org.onap.ncmp.cmhandle-lcm-event.create", headerOf(l.record(topics.LCMEvents, 0), "ce_type"))
	l.say(registrations, "a", "e-2", consumer.TypeStateChange, `{"cmHandle":"a","state":{"cmHandleState":"READY"}}`)
	require.Contains(t, string(l.record(topics.LCMEvents, 1).Value), `"READY"`)
	l.say(states, "x", "a", consumer.TypeHeartbeat, `{"data":{"trustLevel":"NONE"}}`)
	require.Contains(t, string(l.record(topics.InventoryEvents, 0).Value), `"newAttributeValue":"NONE"`)
	l.say(heartbeats, "x", "a", foreign, `{"data":{"trustLevel":"COMPLETE"}}`)
	require.Contains(t, string(l.record(topics.InventoryEvents, 1).Value), `"newAttributeValue":"COMPLETE"`)
	for i, topic := range []string{registrations, states} {
		l.say(topic, "x", "a", foreign, `{"data":{"trustLevel":"NONE"}}`)
		m := l.record(topics.DeadLetters, i)
		require.Equal(t, "unknown-type", headerOf(m, "ncmp_reason"))
		require.Equal(t, topic, headerOf(m, "ncmp_topic"))
	}
	l.say(heartbeats, "x", "ghost", foreign, `{"data":{"trustLevel":"NONE"}}`)
	var o struct {
		Failures []struct{ CmHandle, Operation, ErrorCode string }
	}
	require.NoError(t, json.Unmarshal(l.record(topics.Outcomes, 2).Value, &o))
	require.Equal(t, []struct{ CmHandle, Operation, ErrorCode string }{{"ghost", "heartbeat", "100"}}, o.Failures)
	l.awaitNothingWaits()
	l.requireNothingMore(map[string]int{topics.LCMEvents: 2, topics.InventoryEvents: 2, topics.Outcomes: 3, topics.DeadLetters: 2})
	l.requireVerified()
	w.terminate()
}

// A worker that takes its time to stop ends at the second signal, whatever it
// holds; who comes after it finds all of it.
func TestASecondSignalEndsTheWorkerAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, storetest.OpenEmpty(t), 1)
	topics := l.config.Kafka.Topics
	w := l.startWorker("first", "--drain-timeout", "10m")
	w.awaitLine(`"partitions assigned"`)
	l.say(topics.Registrations[0], "a", "e-1", consumer.TypeRegistration, `{"createdCmHandles":[{"cmHandle":"a"}]}`)
	l.record(topics.LCMEvents, 0)
	pool := l.db.Pool(t)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `lock table fragment in exclusive mode`)
	require.NoError(t, err)
	l.say(topics.Registrations[0], "b", "e-2", consumer.TypeRegistration, `{"createdCmHandles":[{"cmHandle":"b"}]}`)
	require.Eventually(t, func() bool {
		var waits bool
		err := pool.QueryRow(t.Context(), `select exists (select from pg_stat_activity where datname = current_database() and application_name like 'ncmp-inventory%' and wait_event_type = 'Lock')`).Scan(&waits)
		return err == nil && waits
	}, patience, patience/10_000)
	require.NoError(t, w.cmd.Process.Signal(syscall.SIGTERM))
	w.awaitLine(`"stopping"`)
	require.NoError(t, w.cmd.Process.Signal(syscall.SIGTERM))
	<-w.ended
	require.ErrorContains(t, w.err, "exit status 143")
	require.NoError(t, tx.Rollback(t.Context()))
	next := l.startWorker("second")
	require.Equal(t, "b", string(l.record(topics.LCMEvents, 1).Key))
	l.awaitNothingWaits()
	l.requireNothingMore(map[string]int{topics.LCMEvents: 2})
	l.requireVerified()
	next.terminate()
}

// On a database that was NCMP's, NCMP's consumers are thought of: once.
func TestATakenOverDatabaseIsWarnedAbout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		events, headers string
		lines           int
	}{{"all", "utf8", 1}, {"ncmp", "java", 0}, {"ncmp", "utf8", 1}} {
		s := newSystem(t, true)
		s.db = storetest.OpenEmpty(t)
		sql, err := os.ReadFile("../../store/testdata/cps.sql")
		require.NoError(t, err)
		_, err = s.db.Pool(t).Exec(t.Context(), string(sql))
		require.NoError(t, err)
		s.cfg.Database.URL = config.SecretOf(s.db.URL)
		s.cfg.LCM.Events, s.cfg.LCM.LegacyHeaders = c.events, c.headers
		core, logs := observer.New(zap.WarnLevel)
		stop := s.start(t, func(w *worker) { w.log = zap.New(core) })
		s.awaitReady(t)
		require.NoError(t, stop())
		require.Equal(t, c.lines, logs.FilterMessageSnippet("database was NCMP's").Len())
	}
}

// Names and values of private properties are in no log line and no metric, at
// any level, whatever is wrong with the record that they come in.
func TestPrivatePropertiesAreNotLogged(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	var out lockedBuffer
	stop := s.start(t, func(w *worker) {
		w.log, _ = newLogger(config.Log{Level: "debug", Format: "json"}, &out, prometheus.NewRegistry())
	})
	s.awaitReady(t)
	const good = `{"createdCmHandles":[{"cmHandle":"a","cmHandleProperties":{"hidden-name":"hidden-value"}}]}`
	w := load.Writer(s.cfg.Kafka.Brokers, s.cfg.Kafka.Topics.Registrations[0])
	for i, body := range []string{
		good, good, strings.Replace(good, `"hidden-value"`, `["hidden-value"]`, 1), strings.Replace(good, "}}]}", "", 1),
		strings.Replace(good, "hidden-value", `hidden-value\u0000`, 1), strings.Replace(good, `"hidden-name":`, `"hidden-name":"hidden","hidden-name":`, 1),
	} {
		headers := []kafka.Header{{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: []byte{byte('a' + i)}}, {Key: "ce_source", Value: []byte("/t")}, {Key: "ce_type", Value: []byte(consumer.TypeRegistration)}}
		require.NoError(t, w.WriteMessages(t.Context(), kafka.Message{Value: []byte(body), Headers: headers}))
	}
	require.NoError(t, load.Close(w))
	s.await(t, "/metrics", func(_ int, body string) bool {
		return strings.Contains(body, `ncmp_inventory_records_total{result="applied",topic="ncmp-inventory-registrations"} 3`) &&
			strings.Contains(body, `ncmp_inventory_records_total{result="dead-letter",topic="ncmp-inventory-registrations"} 3`)
	})
	_, metrics := s.body(t, "/metrics")
	require.NoError(t, stop())
	require.NotContains(t, out.b.String(), "hidden")
	require.NotContains(t, metrics, "hidden")
	require.Contains(t, metrics, "\nncmp_inventory_unchanged_entries_total 1\n", "the repeat")
}

// A dead letter keeps everything of its record but the time: its own is that of
// its publication.
func TestDeadLetterHasATimeOfItsOwn(t *testing.T) {
	t.Parallel()
	l := newLab(t, storetest.OpenEmpty(t), 1)
	topics := l.config.Kafka.Topics
	before := time.Now().Add(-time.Minute)
	w := load.Writer(l.brokers, topics.Registrations[0])
	old := time.Date(2001, 2, 3, 4, 5, 6, 7e6, time.UTC)
	headers := []kafka.Header{
		{Key: "ce_id", Value: []byte("e")}, {Key: "twice", Value: []byte("1")}, {Key: "twice", Value: []byte{0, 0xff}}, {Key: "traceparent", Value: []byte("t")}, {Key: "null"},
	}
	require.NoError(t, w.WriteMessages(t.Context(), kafka.Message{Key: []byte{0xff, 0}, Value: []byte("{\x00\xff"), Headers: headers, Time: old}))
	require.NoError(t, load.Close(w))
	p := l.startWorker("worker")
	m := l.record(topics.DeadLetters, 0)
	require.Equal(t, []byte{0xff, 0}, m.Key)
	require.Equal(t, "{\x00\xff", string(m.Value))
	require.Equal(t, "2001-02-03T04:05:06.007Z", headerOf(m, "ncmp_timestamp"))
	require.True(t, m.Time.After(before), "%s", m.Time)
	require.Len(t, m.Headers, len(headers)+10)
	for i, h := range headers {
		require.Equal(t, h.Key, m.Headers[i].Key)
		require.Equal(t, string(h.Value), string(m.Headers[i].Value))
	}
	p.terminate()
}

// However many records are bad, repeated or empty, the log has a few lines and
// the metrics have the numbers.
func TestManyBadRecordsAreFewLogLines(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	core, logs := observer.New(zap.InfoLevel)
	stop := s.start(t, func(w *worker) { w.log = zap.New(core) })
	s.awaitReady(t)
	const each = 300
	w := load.Writer(s.cfg.Kafka.Brokers, s.cfg.Kafka.Topics.Registrations[0])
	headers := []kafka.Header{{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: []byte("e")}, {Key: "ce_source", Value: []byte("/t")}, {Key: "ce_type", Value: []byte(consumer.TypeRegistration)}}
	var all []kafka.Message
	for range each {
		all = append(all,
			kafka.Message{Value: []byte(`{`), Headers: headers}, kafka.Message{Value: []byte("legacy")}, kafka.Message{Value: []byte{}}, kafka.Message{},
			kafka.Message{Value: []byte(`{"createdCmHandles":[{"cmHandle":"a"},{"cmHandle":"bad id"}],"removedCmHandles":["ghost"]}`), Headers: headers})
	}
	require.NoError(t, w.WriteMessages(t.Context(), all...))
	require.NoError(t, load.Close(w))
	count := func(metric string, n int) string { return "\nncmp_inventory_" + metric + " " + strconv.Itoa(n) + "\n" }
	s.await(t, "/metrics", func(_ int, body string) bool {
		for _, want := range []string{
			count(`records_total{result="applied",topic="ncmp-inventory-registrations"}`, each),
			count(`records_total{result="dead-letter",topic="ncmp-inventory-registrations"}`, 2*each),
			count(`records_total{result="empty",topic="ncmp-inventory-registrations"}`, 2*each),
			count(`dead_letters_total{reason="bad-json"}`, each), count(`dead_letters_total{reason="not-a-cloudevent"}`, each),
			count(`handle_operations_total{operation="create",result="110"}`, each), count(`handle_operations_total{operation="remove",result="100"}`, each),
			count(`unchanged_entries_total`, each-1),
		} {
			if !strings.Contains(body, want) {
				return false
			}
		}
		return true
	})
	require.NoError(t, stop())
	require.Less(t, logs.Len(), 40, "%v", logs.All())
}
