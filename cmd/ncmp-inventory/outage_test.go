package main

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/store/pgembed"
	"ncmp-inventory/store/storetest"
)

func TestADatabaseOutageIsAPause(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	s.db = storetest.OpenAlone(t, nil)
	s.cfg.Database.URL = config.SecretOf(s.db.URL)
	s.start(t)
	s.awaitReady(t)
	require.NoError(t, s.db.Server().Halt(t.Context(), pgembed.Immediate))
	s.await(t, "/readyz", func(code int, body string) bool {
		return code == http.StatusServiceUnavailable && strings.Contains(body, "postgresql: ")
	})
	code, _ := s.body(t, "/livez")
	require.Equal(t, http.StatusOK, code, "a restart would mend nothing")
	sent := s.run(t, twoBodies, "register", "-")
	require.Equal(t, exitDone, sent.code, sent.stderr)
	require.NoError(t, s.db.Server().Restart(t.Context(), pgembed.Fast))
	s.awaitReady(t)
	s.await(t, "/metrics", func(_ int, body string) bool {
		return strings.Contains(body, `ncmp_inventory_records_total{result="applied",topic="ncmp-inventory-registrations"} 2`)
	})
}

// lockedBuffer takes the log of a whole worker.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func TestNoSecretIsLoggedAtAnyLevel(t *testing.T) {
	t.Parallel()
	const brokerSecret, databaseSecret = "br0ker-s3cr3t", "d4tabase-s3cr3t"
	topics := config.Defaults().Kafka.Topics
	all := append(topics.Inputs(), topics.LCMEvents, topics.InventoryEvents, topics.Outcomes, topics.DeadLetters)
	broker := newBroker(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "worker", brokerSecret), kfake.SeedTopics(1, all...))
	cfg := config.Defaults()
	cfg.Kafka.Brokers = broker.ListenAddrs()
	cfg.Kafka.SASL = config.SASL{Mechanism: "SCRAM-SHA-256", Username: "worker", Password: config.SecretOf(brokerSecret)}
	cfg.Database.URL = config.SecretOf("postgres://u:" + databaseSecret + "@127.0.0.1:1/db?sslmode=disable&connect_timeout=1")
	cfg.HTTP.Address = "127.0.0.1:0"
	s := &system{cfg: cfg, broker: broker}
	var out lockedBuffer
	stop := s.start(t, func(w *worker) {
		w.log, _ = newLogger(config.Log{Level: "debug", Format: "json"}, &out, prometheus.NewRegistry())
	})
	s.await(t, "/readyz", func(_ int, body string) bool { return strings.Contains(body, "postgresql: ") })
	_, ready := s.body(t, "/readyz")
	_, metrics := s.body(t, "/metrics")
	require.NoError(t, stop())
	for _, text := range []string{out.b.String(), ready, metrics} {
		require.NotContains(t, text, brokerSecret)
		require.NotContains(t, text, databaseSecret)
	}
	require.Contains(t, out.b.String(), "waiting for PostgreSQL")
}
