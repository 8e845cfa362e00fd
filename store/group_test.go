package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/store/storetest"
)

func TestOneConsumerGroupAtATime(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t)
	hold := func(group string) string {
		t.Helper()
		other, err := s.HoldGroup(t.Context(), group, time.Minute)
		require.NoError(t, err)
		return other
	}
	require.Empty(t, hold("a"))
	require.Empty(t, hold("a"), "all workers of a group hold it")
	require.Equal(t, "a", hold("b"))
	require.Empty(t, hold("a"))
	execute(t, db, `update ncmp_inventory.consumer_group set until = clock_timestamp() - interval '1 second'`)
	require.Empty(t, hold("b"), "a group that is gone makes room, as one that was renamed does")
	require.Equal(t, "b", hold("a"))
}
