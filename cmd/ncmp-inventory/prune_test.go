package main

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/store/storetest"
)

// Only the worker that publishes prunes, and it goes through all handles.
func TestThePublishingWorkerPrunesTheHistory(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s, pool := db.New(t), db.Pool(t)
	defer pool.Close()
	_, err := pool.Exec(t.Context(), `
		insert into ncmp_inventory.history (at, topic_id, partition, handle, step, source_offset, source_time, cause_id, cause_source)
		select now() - n * interval '1 hour', gen_random_uuid(), 0, 'h' || h, 1, n, now(), '', ''
		from generate_series(1, 1200) h, generate_series(1, 3) n order by n desc`)
	require.NoError(t, err)
	asked, leads := make(chan struct{}, 100), make(chan bool)
	p := newPruner(config.History{Keep: 150 * time.Minute, KeepEvents: 1}, s, func() bool {
		asked <- struct{}{}
		return <-leads
	}, zaptest.NewLogger(t), prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.run(ctx)
	}()
	<-asked
	leads <- false
	<-asked
	require.Zero(t, testutil.ToFloat64(p.removed), "another worker publishes")
	leads <- true
	for range 2 { // 1200 handles are three steps
		<-asked
		leads <- true
	}
	require.Eventually(t, func() bool { return testutil.ToFloat64(p.removed) == 2400 }, patience, time.Millisecond)
	var oldest int
	require.NoError(t, pool.QueryRow(t.Context(), `select max(source_offset) from ncmp_inventory.history`).Scan(&oldest))
	require.Equal(t, 1, oldest)
	cancel()
	<-ended
}
