package store

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// blockSize is the increment of fragment_id_seq. A value v of the sequence
// stands for the ids v-99 to v, as for CPS itself: both can write side by side.
const blockSize = 100

const sqlBlocks = `select nextval('fragment_id_seq') from generate_series(1, $1::int)`

// idBlocks holds fragment ids that were drawn and not used yet, lowest first:
// rows written together then stand together.
type idBlocks struct {
	pool   *pgxpool.Pool
	mu     sync.Mutex
	blocks []idBlock
	free   int
}

// idBlock is the ids from next up to and including last.
type idBlock struct{ next, last int64 }

// idLease is ids set apart for one transaction.
type idLease struct{ blocks []idBlock }

var errNoIDs = errors.New("a transaction ran out of fragment ids")

func (l *idLease) next() (int64, error) {
	for len(l.blocks) > 0 {
		if b := &l.blocks[0]; b.next <= b.last {
			b.next++
			return b.next - 1, nil
		}
		l.blocks = l.blocks[1:]
	}
	return 0, errNoIDs
}

// missing is how many blocks have to be drawn so that n ids are at hand.
func (b *idBlocks) missing(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(0, (n-b.free+blockSize-1)/blockSize)
}

// put adds blocks by the values of the sequence.
func (b *idBlocks) put(values []int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range values {
		b.blocks = append(b.blocks, idBlock{v - blockSize + 1, v})
	}
	b.free += blockSize * len(values)
}

// lease sets n ids apart; ok is false if fewer are at hand.
func (b *idBlocks) lease(n int) (l idLease, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.free < n {
		return l, false
	}
	b.free -= n
	for n > 0 {
		first := &b.blocks[0]
		size := int(first.last - first.next + 1)
		if size > n {
			l.blocks = append(l.blocks, idBlock{first.next, first.next + int64(n) - 1})
			first.next += int64(n)
			break
		}
		l.blocks = append(l.blocks, *first)
		b.blocks = b.blocks[1:]
		n -= size
	}
	return l, true
}

// giveBack returns what a transaction did not use.
func (b *idBlocks) giveBack(l idLease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range l.blocks {
		if n := int(k.last - k.next + 1); n > 0 {
			b.blocks = append(b.blocks, k)
			b.free += n
		}
	}
}

// drop forgets all ids. After a lost connection the database may have gone
// back and hand out the same blocks again.
func (b *idBlocks) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blocks, b.free = nil, 0
}

// queueBlocks asks for so many blocks as part of a batch.
func (s *Store) queueBlocks(b *pgx.Batch, blocks int) {
	b.Queue(sqlBlocks, blocks).Query(func(rows pgx.Rows) error {
		values, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		s.ids.put(values)
		s.metrics.fetched.Add(float64(blockSize * len(values)))
		return nil
	})
}

// take returns n fragment ids, drawing blocks as needed. It runs outside any
// transaction: a sequence never goes back.
func (b *idBlocks) take(ctx context.Context, n int) ([]int64, error) {
	l, ok := b.lease(n)
	for !ok {
		rows, err := b.pool.Query(ctx, sqlBlocks, max(1, b.missing(n)))
		if err != nil {
			return nil, err
		}
		values, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, err
		}
		b.put(values)
		l, ok = b.lease(n)
	}
	ids := make([]int64, n)
	for i := range ids {
		ids[i], _ = l.next()
	}
	return ids, nil
}
