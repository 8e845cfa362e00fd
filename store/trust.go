package store

import (
	"github.com/jackc/pgx/v5"

	"ncmp-inventory/inventory"
)

const (
	sqlReadTrust = `select handle, level from ncmp_inventory.trust where handle = any($1::text[])`
	sqlDropTrust = `delete from ncmp_inventory.trust where handle = any($1::text[])`
	sqlSetTrust  = `
insert into ncmp_inventory.trust (handle, level)
select u.handle, u.level from unnest($1::text[], $2::text[]) as u (handle, level)
on conflict (handle) do update set level = excluded.level`
)

// queueReadTrust reads stored levels into the snapshot.
func (t *transaction) queueReadTrust(b *pgx.Batch, ids []string) {
	if len(ids) == 0 {
		return
	}
	b.Queue(sqlReadTrust, ids).Query(func(rows pgx.Rows) error {
		var id, level string
		_, err := pgx.ForEachRow(rows, []any{&id, &level}, func() error {
			t.snap.Trust[id] = inventory.TrustLevel(level)
			return nil
		})
		return err
	})
}

// trustSet is what one transaction does to trust levels. COMPLETE is what a
// handle without a row has, so it is stored by removing the row.
type trustSet struct {
	drop, ids, levels []string
}

func (t *trustSet) set(id string, level inventory.TrustLevel, gone bool) {
	if gone || level == inventory.TrustComplete {
		t.drop = append(t.drop, id)
	}
	if level != inventory.TrustUnset && level != inventory.TrustComplete {
		t.ids, t.levels = append(t.ids, id), append(t.levels, string(level))
	}
}

func (t *trustSet) queue(b *pgx.Batch) {
	if len(t.drop) > 0 {
		b.Queue(sqlDropTrust, t.drop)
	}
	if len(t.ids) > 0 {
		b.Queue(sqlSetTrust, t.ids, t.levels)
	}
}
