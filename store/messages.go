package store

import (
	"context"

	"github.com/jackc/pgx/v5"

	"ncmp-inventory/inventory"
)

// The messages of one statement.
const (
	chunkMessages     = 2000
	chunkMessageBytes = 4 << 20
)

// sqlInsertMessages is the last write of a transaction and draws the sequence
// in the order of the plan.
const sqlInsertMessages = `
insert into ncmp_inventory.outbox (kind, hash, key, headers, value)
select u.kind, u.hash, u.key, u.headers, u.value
from unnest($1::smallint[], $2::int[], $3::bytea[], $4::bytea[], $5::bytea[]) with ordinality as u (kind, hash, key, headers, value, n)
order by u.n`

// noHeaders is a header count of zero.
var noHeaders = []byte{0}

// queueMessages adds the messages, sending what was gathered whenever the next
// statement would make the batch too large. It returns the batch to go on with.
func (t *transaction) queueMessages(ctx context.Context, b *pgx.Batch, ms []inventory.Message) (*pgx.Batch, error) {
	for len(ms) > 0 {
		n, size := 0, 0
		for n < len(ms) && n < chunkMessages && size < chunkMessageBytes {
			size += len(ms[n].Key) + len(ms[n].Headers) + len(ms[n].Value)
			n++
		}
		kinds, hashes := make([]int16, n), make([]int32, n)
		all := make([][]byte, 3*n)
		keys, headers, values := all[:n:n], all[n:2*n:2*n], all[2*n:]
		for i, m := range ms[:n] {
			kinds[i], hashes[i] = int16(m.Kind), hashOf(m.Key)
			keys[i], headers[i], values[i] = m.Key, m.Headers, m.Value
			if m.Headers == nil {
				headers[i] = noHeaders
			}
		}
		b.Queue(sqlInsertMessages, kinds, hashes, arrayOf(keys), arrayOf(headers), arrayOf(values))
		if ms = ms[n:]; len(ms) > 0 {
			if err := t.conn.SendBatch(ctx, b).Close(); err != nil {
				return nil, err
			}
			b = &pgx.Batch{}
		}
	}
	return b, nil
}
