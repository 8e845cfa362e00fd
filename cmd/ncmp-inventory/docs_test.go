package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/store/storetest"
)

// shownRecord is a record as docs/events.md shows it.
type shownRecord struct {
	out     bool
	topic   string
	headers [][2]string // key among them
	value   string
}

func shownRecords(t *testing.T, document string) []shownRecord {
	t.Helper()
	var all []shownRecord
	for _, m := range regexp.MustCompile("(?s)```event (in|out) (\\S+)\n(.*?)\n\n(.*?)\n```").FindAllStringSubmatch(document, -1) {
		r := shownRecord{out: m[1] == "out", topic: m[2], value: m[4]}
		for line := range strings.Lines(m[3]) {
			name, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
			require.True(t, ok, line)
			r.headers = append(r.headers, [2]string{name, value})
		}
		all = append(all, r)
	}
	require.Len(t, all, strings.Count(document, "```event "), "every block was understood")
	return all
}

// The conversation of docs/events.md is held with a worker: its inputs are sent,
// and after each the outputs have to come, as shown and no other.
func TestEventsAreAsDocumented(t *testing.T) {
	t.Parallel()
	newLab(t, storetest.OpenEmpty(t), 1).requireEventsAsDocumented()
}

func (l *lab) requireEventsAsDocumented() {
	l.Helper()
	w := l.startWorker("worker")
	w.awaitLine(`"started"`)
	read := map[string]int{} // topic to how many of its records were compared
	for _, shown := range shownRecords(l.T, readRepo(l.T, "docs/events.md")) {
		if !shown.out {
			l.requireNothingMore(read)
			l.sendShown(shown)
			continue
		}
		topic := l.named(shown.topic)
		m := l.record(topic, read[topic])
		read[topic]++
		l.requireShown(shown, m)
	}
	l.awaitNothingWaits()
	l.requireNothingMore(read)
	require.Len(l, read, 4, "every output topic is shown")
	w.terminate()
}

// named is what a topic of the documents is called in the lab.
func (l *lab) named(shown string) string {
	own := allTopics(l.config.Kafka.Topics)
	for i, name := range allTopics(config.Defaults().Kafka.Topics) {
		if name == shown {
			return own[i]
		}
	}
	require.Fail(l, "no topic is called "+shown)
	return ""
}

func (l *lab) sendShown(r shownRecord) {
	l.Helper()
	var m kafka.Message
	for _, h := range r.headers {
		if h[0] == "key" {
			m.Key = []byte(h[1])
			continue
		}
		m.Headers = append(m.Headers, kafka.Header{Key: h[0], Value: []byte(h[1])})
	}
	m.Value = []byte(r.value)
	w := load.Writer(l.brokers, l.named(r.topic))
	require.NoError(l, w.WriteMessages(l.Context(), m))
	require.NoError(l, load.Close(w))
}

// record waits for the n-th record of a topic with one partition.
func (l *lab) record(topic string, n int) *kafka.Message {
	l.Helper()
	var all []kafka.Message
	require.Eventually(l, func() bool {
		all = l.topic(topic)
		return len(all) > n
	}, patience, 20*time.Millisecond, "record %d of %s", n, topic)
	return &all[n]
}

// requireNothingMore says that the outputs hold what was compared and no more.
func (l *lab) requireNothingMore(read map[string]int) {
	l.Helper()
	t := l.config.Kafka.Topics
	for _, topic := range []string{t.LCMEvents, t.InventoryEvents, t.Outcomes, t.DeadLetters} {
		require.Len(l, l.topic(topic), read[topic], topic)
	}
}

func (l *lab) requireShown(shown shownRecord, m *kafka.Message) {
	l.Helper()
	for _, h := range shown.headers {
		got := headerOf(m, h[0])
		if h[0] == "key" {
			got = string(m.Key)
		}
		if h[0] == "ncmp_topic" {
			h[1] = l.named(h[1])
		}
		if h[1] == "*" {
			require.NotEmpty(l, got, h[0])
			continue
		}
		require.Equal(l, h[1], got, "%s of a record on %s", h[0], shown.topic)
	}
	if shown.topic == "ncmp-inventory-dead-letters" {
		require.Equal(l, shown.value, string(m.Value), "byte by byte")
		names := make([]string, len(m.Headers))
		for i, h := range m.Headers {
			names[i] = h.Key
		}
		want := make([]string, 0, len(shown.headers))
		for _, h := range shown.headers[1:] {
			want = append(want, h[0])
		}
		require.True(l, slices.Equal(want, names), "%s", names)
		return
	}
	var want, got any
	text := strings.Replace(shown.value, `"topic": "ncmp-inventory-registrations"`, `"topic": "`+l.config.Kafka.Topics.Registrations[0]+`"`, 1)
	require.NoError(l, json.Unmarshal([]byte(text), &want))
	require.NoError(l, json.Unmarshal(m.Value, &got))
	require.Equal(l, want, starred(want, got), shown.topic)
}

// starred is got with a star wherever want has one.
func starred(want, got any) any {
	switch w := want.(type) {
	case string:
		if w == "*" && got != nil {
			return "*"
		}
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			for name := range g {
				g[name] = starred(w[name], g[name])
			}
		}
	case []any:
		if g, ok := got.([]any); ok && len(g) == len(w) {
			for i := range g {
				g[i] = starred(w[i], g[i])
			}
		}
	}
	return got
}
