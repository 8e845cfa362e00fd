package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/cmd/ncmp-inventory/config"
)

// The log tells of problems, not of records: thousands of events that change
// nothing, are refused or cannot be read leave a handful of lines, at any level,
// and none of them has a private property in it.
func TestTheLogIsNotAboutRecords(t *testing.T) {
	t.Parallel()
	const n, private = 1500, "hush-hush"
	s := newSystem(t, true)
	var out lockedBuffer
	stop := s.start(t, func(w *worker) {
		w.log, _ = newLogger(config.Log{Level: "debug", Format: "json"}, &out, prometheus.NewRegistry())
	})
	s.awaitReady(t)
	bodies := []string{
		`{"createdCmHandles":[{"cmHandle":"same","cmHandleProperties":{"password":"` + private + `"}}]}`,
		`{"updatedCmHandles":[{"cmHandle":"nobody","cmHandleProperties":{"password":"` + private + `"}}]}`,
		`{"createdCmHandles":{"cmHandle":"a","cmHandleProperties":{"password":"` + private + `"}}}`,
		`{"createdCmHandles":[{"cmHandle":"b","cmHandleProperties":{"password":["` + private + `"]}}]}`,
		`{"createdCmHandles":[{"cmHandle":"c","cmHandleProperties":{"password":"` + private + `"`,
	}
	topic := s.cfg.Kafka.Topics.Registrations[0]
	w := load.Writer(s.cfg.Kafka.Brokers, topic)
	require.NoError(t, load.Send(t.Context(), w, func(yield func(load.Event) bool) {
		for i := range n {
			if !yield(load.Event{ID: fmt.Sprint(i), Type: load.RegistrationType, Key: "k", Data: []byte(bodies[i%len(bodies)])}) {
				return
			}
		}
	}, nil))
	require.NoError(t, load.Close(w))
	s.await(t, "/metrics", func(_ int, body string) bool {
		return strings.Contains(body, fmt.Sprintf(`ncmp_inventory_records_total{result="applied",topic=%q} %d`, topic, 3*n/5)) &&
			strings.Contains(body, fmt.Sprintf(`ncmp_inventory_records_total{result="dead-letter",topic=%q} %d`, topic, 2*n/5))
	})
	_, metrics := s.body(t, "/metrics")
	require.NoError(t, stop())
	text := out.b.String()
	require.Less(t, strings.Count(text, "\n"), 60, text)
	for _, said := range []string{text, metrics} {
		require.NotContains(t, said, private)
	}
	told := (&lab{T: t, brokers: s.cfg.Kafka.Brokers}).topic(s.cfg.Kafka.Topics.Outcomes)
	require.Len(t, told, n-n/5, "everything but the repeats is told to its sender")
	for i := range told {
		require.NotContains(t, string(told[i].Value), private)
	}
	require.NotContains(t, headersOf((&lab{T: t, brokers: s.cfg.Kafka.Brokers}).topic(s.cfg.Kafka.Topics.DeadLetters)), private, "the reason quotes no value")
}

// headersOf are the names and values of all headers.
func headersOf(all []kafka.Message) string {
	var b strings.Builder
	for i := range all {
		for _, h := range all[i].Headers {
			b.WriteString(h.Key + ": " + string(h.Value) + "\n")
		}
	}
	return b.String()
}
