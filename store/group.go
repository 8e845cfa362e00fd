package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	sqlHoldGroup = `
insert into ncmp_inventory.consumer_group as g (name, until) values ($1, clock_timestamp() + $2::interval)
on conflict (singleton) do update set name = excluded.name, until = excluded.until
where g.name = excluded.name or g.until < clock_timestamp()
returning name`
	sqlOtherGroup = `select name from ncmp_inventory.consumer_group`
)

// HoldGroup tells the database that a consumer group works on it, for ttl on the
// database's clock. It returns the name of another group that does, and then
// changes nothing; "" is none. Positions belong to the database: two groups on
// it would claim the partitions from each other without end. Once a group's
// workers are gone another one, or the same under a new name, goes on.
func (s *Store) HoldGroup(ctx context.Context, group string, ttl time.Duration) (other string, err error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	var name string
	err = s.pool.QueryRow(ctx, sqlHoldGroup, group, ttl).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		err = s.pool.QueryRow(ctx, sqlOtherGroup).Scan(&other)
		if other == group { // it has just come to be ours
			other = ""
		}
	}
	return other, s.classify("telling the database its consumer group", err)
}
