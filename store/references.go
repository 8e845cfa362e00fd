package store

import (
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"ncmp-inventory/inventory"
)

// sqlLockKeys is the one statement that locks: every key that a batch names,
// whether it exists or not, in one order for all transactions. A key that was
// not there is reserved for the handle it would belong to; the update that
// never happens is what locks those that were.
const sqlLockKeys = `
insert into ncmp_inventory.reference (key, owner)
select u.key, u.owner from unnest($1::text[], $2::text[]) as u (key, owner)
order by u.key collate "C"
on conflict (key) do update set owner = excluded.owner where false
returning key`

const (
	// sqlReadOwners must not be part of sqlLockKeys: a statement sees rows as
	// they were before it waited.
	sqlReadOwners = `select key, owner from ncmp_inventory.reference where key = any($1::text[])`
	sqlSetOwners  = `
update ncmp_inventory.reference r set owner = u.owner
from (select $1::text[] as keys, $2::text[] as owners offset 0) p, unnest(p.keys, p.owners) as u (key, owner)
where r.key = u.key`
	sqlReleaseKeys = `delete from ncmp_inventory.reference where key = any($1::text[])`
	// sqlReadAlternates reads, without a lock, what removals would free.
	sqlReadAlternates = `
select u.n, h.alternate
from unnest($2::text[]) with ordinality as u (xpath, n)
cross join lateral (
    select f.attributes ->> 'alternate-id' as alternate
    from fragment f where f.anchor_id = $1 and f.xpath = u.xpath limit 1) h
where h.alternate <> ''`
)

// maxKey is the longest key in bytes that an index row surely holds. NCMP sets no
// limit: an alternate id that is longer has no reference.
const maxKey = 2600

func referable(key string) bool { return key != "" && len(key) <= maxKey }

// keySet is the keys that a transaction locks, sorted bytewise.
type keySet struct{ keys, owners []string }

func (k *keySet) holds(key string) bool {
	_, ok := slices.BinarySearch(k.keys, key)
	return ok
}

// add proposes owners for keys that may not be there yet. The slices of the
// caller's Need are left as they are.
func (k *keySet) add(claims []inventory.Claim) {
	claims = slices.DeleteFunc(claims, func(c inventory.Claim) bool { return c.Key == "" || k.holds(c.Key) })
	if len(claims) == 0 {
		return
	}
	slices.SortFunc(claims, func(a, b inventory.Claim) int { return strings.Compare(a.Key, b.Key) })
	claims = slices.CompactFunc(claims, func(a, b inventory.Claim) bool { return a.Key == b.Key })
	n := len(k.keys) + len(claims)
	merged := keySet{make([]string, 0, n), make([]string, 0, n)}
	for i, key := range k.keys {
		for len(claims) > 0 && claims[0].Key < key {
			merged.keys, merged.owners = append(merged.keys, claims[0].Key), append(merged.owners, claims[0].Owner)
			claims = claims[1:]
		}
		merged.keys, merged.owners = append(merged.keys, key), append(merged.owners, k.owners[i])
	}
	for _, c := range claims {
		merged.keys, merged.owners = append(merged.keys, c.Key), append(merged.owners, c.Owner)
	}
	*k = merged
}

// queueLock locks the keys and then reads who owns them, unless nobody asks: a
// batch that creates, renames and removes nothing, state changes as a rule,
// leaves all keys as they are.
func (t *transaction) queueLock(b *pgx.Batch, k *keySet) {
	if len(k.keys) == 0 {
		return
	}
	b.Queue(sqlLockKeys, k.keys, k.owners).Query(func(rows pgx.Rows) error {
		var key string
		_, err := pgx.ForEachRow(rows, []any{&key}, func() error {
			t.reserved[key] = struct{}{}
			return nil
		})
		return err
	})
	if len(t.need.Frees) == 0 && len(t.need.Full) == 0 && len(k.keys) == len(t.need.Handles) {
		return
	}
	b.Queue(sqlReadOwners, k.keys).Query(func(rows pgx.Rows) error {
		var key, owner string
		_, err := pgx.ForEachRow(rows, []any{&key, &owner}, func() error {
			if _, ours := t.reserved[key]; !ours {
				t.snap.Owners[key] = owner
			}
			return nil
		})
		return err
	})
}

// heal turns reservations of keys that a stored handle bears into references:
// rows written by an older system since the migration have none.
func (t *transaction) heal() {
	for id, h := range t.snap.Handles {
		for _, key := range [2]string{id, h.AlternateID} {
			if _, ok := t.reserved[key]; ok {
				delete(t.reserved, key)
				t.snap.Owners[key] = id
				t.healed[key] = id
			}
		}
	}
}

// errUnlocked means that a plan claims a key that the batch did not name.
var errUnlocked = errors.New("the plan claims a key that is not locked")

// queueReferences gives keys to their new owners and removes those that are
// free now, reservations that came to nothing among them.
func (t *transaction) queueReferences(b *pgx.Batch, p *inventory.Plan, k *keySet) error {
	var set keySet
	free := slices.Clone(p.Releases)
	for _, c := range p.Claims {
		i, ok := slices.BinarySearch(k.keys, c.Key)
		if !ok {
			return errUnlocked
		}
		_, ours := t.reserved[c.Key]
		delete(t.reserved, c.Key)
		delete(t.healed, c.Key)
		if !ours || k.owners[i] != c.Owner {
			set.keys, set.owners = append(set.keys, c.Key), append(set.owners, c.Owner)
		}
	}
	for key, owner := range t.healed {
		set.keys, set.owners = append(set.keys, key), append(set.owners, owner)
	}
	for key := range t.reserved {
		free = append(free, key)
	}
	if len(set.keys) > 0 {
		b.Queue(sqlSetOwners, set.keys, set.owners)
	}
	if len(free) > 0 {
		b.Queue(sqlReleaseKeys, free)
	}
	return nil
}
