package store_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

func TestFragmentIDsAreTheBlocksBelowTheSequencesValues(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t)
	ids, err := store.TakeIDs(t.Context(), s, 150)
	require.NoError(t, err)
	require.EqualValues(t, 101, ids[0], "the root's block ended at 100")
	require.EqualValues(t, 250, ids[149])
	more, err := store.TakeIDs(t.Context(), s, 60)
	require.NoError(t, err)
	require.EqualValues(t, 251, more[0])
	require.Equal(t, []string{"400"}, column(t, db, `select last_value::text from fragment_id_seq`))
}

func TestFragmentIDsAreNeverHandedOutTwice(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	stores := []*store.Store{db.New(t), db.New(t)}
	lists := make([][]int64, 8)
	var g errgroup.Group
	for i := range lists {
		g.Go(func() error {
			for n := range 40 {
				ids, err := store.TakeIDs(t.Context(), stores[i%2], 1+(n*37+i)%250)
				if err != nil {
					return err
				}
				lists[i] = append(lists[i], ids...)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	all := slices.Concat(lists...)
	n := len(all)
	slices.Sort(all)
	require.Len(t, slices.Compact(all), n)
}

// TestHashIsThatOfKafkasJavaProducer uses the values of Kafka's own tests.
func TestHashIsThatOfKafkasJavaProducer(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		require.Equal(t, want&0x7fffffff, store.HashOf([]byte(key)), "key %q", key)
	}
	require.Zero(t, store.HashOf(nil))
}
