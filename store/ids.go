package store

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// blockSize is the increment of fragment_id_seq. A value v of the sequence
// stands for the ids v-99 to v, as for CPS itself: both can write side by side.
const blockSize = 100

const sqlBlocks = `select nextval('fragment_id_seq') from generate_series(1, $1::int)`

// idBlocks holds fragment ids that were drawn and not used yet.
type idBlocks struct {
	pool   *pgxpool.Pool
	mu     sync.Mutex
	blocks []idBlock
	free   int
}

// idBlock is the ids from next up to and including last.
type idBlock struct{ next, last int64 }

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

// tryTake appends n ids to dst, or nothing if fewer are at hand.
func (b *idBlocks) tryTake(dst []int64, n int) ([]int64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.free < n {
		return dst, false
	}
	b.free -= n
	for n > 0 {
		top := &b.blocks[len(b.blocks)-1]
		for n > 0 && top.next <= top.last {
			dst = append(dst, top.next)
			top.next++
			n--
		}
		if top.next > top.last {
			b.blocks = b.blocks[:len(b.blocks)-1]
		}
	}
	return dst, true
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
	ids := make([]int64, 0, n)
	for {
		ids, ok := b.tryTake(ids, n)
		if ok {
			return ids, nil
		}
		rows, err := b.pool.Query(ctx, sqlBlocks, max(1, b.missing(n)))
		if err != nil {
			return nil, err
		}
		values, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return nil, err
		}
		b.put(values)
	}
}
