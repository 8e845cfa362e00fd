package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/inventory"
)

// Handles that do not get on show as the age of their state, and in the list.
func TestStuckHandlesShow(t *testing.T) {
	t.Parallel()
	s := newSystem(t, false)
	for i, h := range []struct {
		state inventory.State
		age   time.Duration
	}{{inventory.Locked, time.Hour}, {inventory.Locked, 5 * time.Minute}, {inventory.Advised, 20 * time.Minute}, {inventory.Ready, 30 * 24 * time.Hour}} {
		id := string(rune('a' + i))
		s.sql(t, `
			with handle as (
				insert into fragment (id, xpath, attributes, anchor_id, parent_id)
				select nextval('fragment_id_seq'), xpath || '/cm-handles[@id=''' || $1::text || ''']', jsonb_build_object('id', $1::text), anchor_id, id
				from fragment where xpath = '/dmi-registry' returning id, xpath, anchor_id
			), state as (
				insert into fragment (id, xpath, attributes, anchor_id, parent_id)
				select nextval('fragment_id_seq'), xpath || '/state', jsonb_build_object('cm-handle-state', $2::text, 'last-update-time', $3::text), anchor_id, id
				from handle
			)
			insert into ncmp_inventory.reference (key, owner) values ($1, $1)`,
			id, string(h.state), inventory.FormatTime(time.Now().Add(-h.age)))
	}
	m := newMonitor(config.Outbox{}, nil, s.db.New(t), zap.NewNop(), prometheus.NewRegistry())
	m.count(t.Context())
	for state, want := range map[string]time.Duration{"LOCKED": time.Hour, "ADVISED": 20 * time.Minute, "DELETING": 0} {
		require.InDelta(t, want.Seconds(), testutil.ToFloat64(m.stateAge.WithLabelValues(state)), patience.Seconds(), state)
	}
	require.InDelta(t, 2, testutil.ToFloat64(m.handles.WithLabelValues("LOCKED")), 0)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--stuck", "10m"}, []string{"a", "c"}},
		{[]string{"--stuck", "10m", "--state", "LOCKED"}, []string{"a"}},
		{[]string{"--stuck", "2h"}, nil},
	} {
		got := s.run(t, "", append([]string{"list"}, c.args...)...)
		require.Equal(t, exitDone, got.code, got.stderr)
		var ids []string
		for _, line := range strings.Split(strings.TrimSpace(got.stdout), "\n")[1:] {
			ids = append(ids, strings.Fields(line)[0])
		}
		require.Equal(t, c.want, ids, "%v", c.args)
	}
}
