package store_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

const addMessages = `
insert into ncmp_inventory.outbox (kind, hash, key, headers, value)
select 0, g, convert_to('ch-' || g, 'UTF8'), repeat('h', 400)::bytea, repeat('v', 600)::bytea from generate_series(1, $1::int) g`

func addMessagesTo(b *testing.B, pool *pgxpool.Pool, n int) {
	b.Helper()
	_, err := pool.Exec(b.Context(), addMessages, n)
	require.NoError(b, err)
}

// Each round acknowledges a window and reads the next; the barest statements
// delete and select the same rows without lease, parking or bounds.
func BenchmarkExchange(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprint(n, "/store"), func(b *testing.B) {
			pool, o, l := publisher(b)
			w := inventory.Window{Rows: n, Bytes: 64 << 20, Partitions: 4}
			addMessagesTo(b, pool, n)
			acked := ids(exchange(b, o, l, w))
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				addMessagesTo(b, pool, n)
				b.StartTimer()
				rows, err := o.Exchange(b.Context(), l, inventory.LCMEvent, acked, w)
				require.NoError(b, err)
				require.Len(b, rows, n)
				acked = ids(rows)
			}
			reportRows(b, n)
		})
		b.Run(fmt.Sprint(n, "/bare"), func(b *testing.B) {
			pool, _, _ := publisher(b)
			addMessagesTo(b, pool, n)
			read := func() (got []int64) {
				rows, err := pool.Query(b.Context(), `select id, key, headers, value from ncmp_inventory.outbox where kind = 0 order by id limit $1`, n)
				require.NoError(b, err)
				var id int64
				var key, headers, value []byte
				for rows.Next() {
					require.NoError(b, rows.Scan(&id, &key, &headers, &value))
					got = append(got, id)
				}
				require.NoError(b, rows.Err())
				return got
			}
			acked := read()
			for b.Loop() {
				b.StopTimer()
				addMessagesTo(b, pool, n)
				b.StartTimer()
				_, err := pool.Exec(b.Context(), `delete from ncmp_inventory.outbox where kind = 0 and id = any($1)`, acked)
				require.NoError(b, err)
				acked = read()
				require.Len(b, acked, n)
			}
			reportRows(b, n)
		})
	}
}

// A look at an outbox at its default bound of 256 MiB.
func BenchmarkLoad(b *testing.B) {
	const rows = 260_000
	pool, o, _ := publisher(b)
	addMessagesTo(b, pool, rows)
	for b.Loop() {
		l, err := o.Load(b.Context())
		require.NoError(b, err)
		require.EqualValues(b, rows, l.Rows)
	}
}
