package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// Two consumer groups on one database would take the partitions from each other
// for ever: the second one waits, unready, and says for whom.
func TestASecondConsumerGroupWaits(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	stop := s.start(t)
	s.awaitReady(t)
	first := s.http
	s.cfg.Kafka.Group, s.cfg.Kafka.InstanceID = "renamed", "second"
	core, logs := observer.New(zap.WarnLevel)
	s.start(t, func(w *worker) { w.log = zap.New(core) })
	second := s.http
	const why = `consumer group "ncmp-inventory" works on this database, kafka.group is "renamed"`
	s.await(t, "/readyz", func(code int, body string) bool {
		return code == http.StatusServiceUnavailable && strings.Contains(body, "kafka.group: "+why)
	})
	require.Equal(t, 1, logs.FilterMessage("waiting for another consumer group").Len())
	require.Zero(t, logs.FilterMessageSnippet("PostgreSQL").Len())
	s.http = first
	s.awaitReady(t)
	require.NoError(t, stop())
	// Its word still counts for a while; the test does not wait for that.
	_, err := s.db.Pool(t).Exec(t.Context(), `update ncmp_inventory.consumer_group set until = clock_timestamp()`)
	require.NoError(t, err)
	s.http = second
	s.awaitReady(t)
	require.Equal(t, exitWrong, s.run(t, twoBodies, "register", "-", "--wait").code)
}

// A worker that finds another group on its database, after it was frozen, takes
// no input until that one is gone.
func TestAGroupThatWasOvertakenPauses(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	var w *worker
	s.start(t, func(started *worker) { w = started })
	s.awaitReady(t)
	pool := s.db.Pool(t)
	set := func(sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	m := w.running.Load().monitor
	set(`update ncmp_inventory.consumer_group set name = 'other', until = clock_timestamp() + interval '1 hour'`)
	m.hold(t.Context())
	s.await(t, "/readyz", func(code int, body string) bool {
		return code == http.StatusServiceUnavailable && strings.Contains(body, `consumer group "other" works on this database`)
	})
	set(`update ncmp_inventory.consumer_group set until = clock_timestamp()`)
	m.hold(t.Context())
	s.awaitReady(t)
}
