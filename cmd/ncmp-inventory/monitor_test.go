package main

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/inventory"
)

func TestTheGateClosesAtABoundAndOpensWellBelowIt(t *testing.T) {
	t.Parallel()
	m := newMonitor(config.Outbox{MaxBytes: 1000, MaxAge: time.Minute}, nil, nil, zap.NewNop(), prometheus.NewRegistry())
	for _, step := range []struct {
		bytes int64
		age   time.Duration
		why   string
	}{
		{1000, time.Minute, ""},
		{1001, 0, "outbox.max-bytes"},
		{900, 0, "outbox.max-bytes"}, // between the waters
		{750, 0, ""},
		{900, 0, ""},
		{0, 61 * time.Second, "outbox.max-age"},
		{0, 50 * time.Second, "outbox.max-age"},
		{0, 45 * time.Second, ""},
	} {
		m.decide(inventory.OutboxLoad{Bytes: step.bytes, Age: step.age})
		if step.why == "" {
			require.Empty(t, m.gate(), "%+v", step)
			continue
		}
		require.Contains(t, m.gate(), step.why, "%+v", step)
	}
}

func TestAFullOutboxIsLookedAtMoreRarely(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{
		0: time.Second, 10 * time.Millisecond: time.Second, 100 * time.Millisecond: 2 * time.Second,
		800 * time.Millisecond: 5 * time.Second, 10 * time.Second: 50 * time.Second,
	} {
		require.Equal(t, want, nextLoad(took), "%s", took)
	}
}
