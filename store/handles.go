package store

import (
	"cmp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"ncmp-inventory/inventory"
)

// A CM handle is a small tree of data nodes:
//
//	/dmi-registry/cm-handles[@id='ID']            its leaves
//	  /public-properties[@name='N']               name, value
//	  /additional-properties[@name='N']           name, value (private)
//	  /state                                      cm-handle-state, last-update-time, data-sync-enabled
//	    /lock-reason                              reason, details
//	    /datastores                               {}
//	      /operational                            sync-state, last-sync-time

const (
	publicStep  = "/public-properties["
	privateStep = "/additional-properties["

	publicKind, privateKind = "public", "private"
)

// handleXPath is the xpath of a handle's data node.
func handleXPath(id string) string {
	return "/dmi-registry/cm-handles[@id='" + quoteKey(id) + "']"
}

func propertyXPath(handle, step, name string) string {
	return handle + step + "@name='" + quoteKey(name) + "']"
}

// sqlReadHandles finds each handle and its state by their xpaths, and what hangs
// below the state by parent. Each LATERAL with its LIMIT or OFFSET holds the planner
// to one index look-up per row, whatever it thinks of the table's size. The state is
// found by xpath: by parent it would be one of a dozen children. A handle comes once
// for each row below its state, which is one or none as a rule, and told apart here.
const sqlReadHandles = `
select u.n, h.id,
       h.attributes ->> 'alternate-id', h.attributes ->> 'module-set-tag', h.attributes ->> 'data-producer-identifier',
       h.attributes ->> 'dmi-service-name', h.attributes ->> 'dmi-data-service-name', h.attributes ->> 'dmi-model-service-name',
       h.attributes ->> 'dmi-datajobs-read-service', h.attributes ->> 'dmi-datajobs-write-service',
       s.id, s.attributes ->> 'cm-handle-state', s.attributes ->> 'last-update-time', s.attributes ->> 'data-sync-enabled',
       c.id, c.xpath, c.attributes ->> 'reason', c.attributes ->> 'details',
       o.id, o.attributes ->> 'sync-state', o.attributes ->> 'last-sync-time'
from unnest($2::text[], $3::boolean[]) with ordinality as u (xpath, deep, n)
cross join lateral (
    select f.id, f.attributes from fragment f where f.anchor_id = $1 and f.xpath = u.xpath limit 1) h
left join lateral (
    select f.id, f.attributes from fragment f where f.anchor_id = $1 and f.xpath = u.xpath || '/state' and f.parent_id = h.id limit 1) s on true
left join lateral (
    select f.id, f.xpath, f.attributes from fragment f where u.deep and f.parent_id = s.id offset 0) c on true
left join lateral (
    select f.id, f.attributes from fragment f where c.xpath like '%/datastores' and f.parent_id = c.id and f.xpath like '%/operational' limit 1) o on true`

// queueReadHandles reads handles without their properties into the snapshot,
// and what lies below their states for those that are needed deep.
func (t *transaction) queueReadHandles(b *pgx.Batch, ids []string, deep []bool) {
	if len(ids) == 0 {
		return
	}
	b.Queue(sqlReadHandles, t.s.anchor, handleXPaths(ids), deep).Query(func(rows pgx.Rows) error {
		var n, handle int64
		var state, child, operational pgtype.Int8
		var alternate, tag, producer, stateName, lastUpdate, dataSync, xpath, reason, details, syncState, lastSync pgtype.Text
		var dmi [len(inventory.DMINames{})]pgtype.Text
		_, err := pgx.ForEachRow(rows, []any{
			&n, &handle, &alternate, &tag, &producer, &dmi[0], &dmi[1], &dmi[2], &dmi[3], &dmi[4],
			&state, &stateName, &lastUpdate, &dataSync, &child, &xpath, &reason, &details,
			&operational, &syncState, &lastSync,
		}, func() error {
			h := t.snap.Handles[ids[n-1]]
			if h == nil {
				h = &inventory.Stored{
					Handle: inventory.Handle{
						ID:             ids[n-1],
						AlternateID:    trimmed(alternate.String),
						ModuleSetTag:   tag.String,
						DataProducerID: producer.String,
						State: inventory.CompositeState{
							State:      inventory.State(stateName.String),
							LastUpdate: lastUpdate.String,
							DataSync:   triOf(dataSync),
						},
					},
					Rows: inventory.Rows{Handle: handle, State: state.Int64},
				}
				for i, d := range dmi {
					h.DMI[i] = inventory.Text{Value: d.String, Set: d.Valid}
				}
				t.snap.Handles[h.ID] = h
			}
			switch {
			case strings.HasSuffix(xpath.String, "/lock-reason") && h.State.Lock == nil:
				h.Rows.Lock = child.Int64
				h.State.Lock = &inventory.LockReason{Reason: textOf(reason), Details: textOf(details)}
			case strings.HasSuffix(xpath.String, "/datastores") && !h.State.Datastores:
				h.Rows.Datastores, h.State.Datastores = child.Int64, true
				if operational.Valid {
					h.Rows.Operational = operational.Int64
					h.State.Operational = &inventory.SyncState{State: textOf(syncState), LastSyncTime: textOf(lastSync)}
				}
			}
			return nil
		})
		return err
	})
}

func handleXPaths(ids []string) []string {
	xpaths := make([]string, len(ids))
	for i, id := range ids {
		xpaths[i] = handleXPath(id)
	}
	return xpaths
}

// trimmed is an alternate id in the form in which ids are compared. It cuts what
// the SQL of migration and Verify cuts and no more: a no-break space is a part of
// the name.
func trimmed(alternate string) string { return strings.Trim(alternate, " \t\n\r") }

func textOf(t pgtype.Text) inventory.Text {
	return inventory.Text{Value: t.String, Set: t.Valid}
}

func triOf(t pgtype.Text) inventory.Tri {
	if !t.Valid {
		return inventory.Unset
	}
	return inventory.TriOf(t.String == "true")
}

// sqlReadProperties reads the list entries below handles. The kind is told
// here where the xpath starts with the handle's; else the xpath goes along.
// OFFSET 0 keeps the planner from joining the whole table.
const sqlReadProperties = `
select u.n, p.id,
       case when starts_with(p.xpath, h.xpath || '` + publicStep + `') then '` + publicKind + `'
            when starts_with(p.xpath, h.xpath || '` + privateStep + `') then '` + privateKind + `'
            else p.xpath end,
       p.attributes ->> 'name', p.attributes ->> 'value'
from unnest($2::text[]) with ordinality as u (xpath, n)
cross join lateral (
    select f.id, f.xpath from fragment f where f.anchor_id = $1 and f.xpath = u.xpath limit 1) h
cross join lateral (
    select f.id, f.xpath, f.attributes from fragment f where f.parent_id = h.id and f.xpath like '%]' offset 0) p`

// property is one stored property row.
type property struct {
	id          int64
	name, value string
}

// queueReadProperties reads the properties of handles. They are added to the
// snapshot by addProperties, once the handles themselves are known.
func (t *transaction) queueReadProperties(b *pgx.Batch, ids []string) {
	if len(ids) == 0 {
		return
	}
	b.Queue(sqlReadProperties, t.s.anchor, handleXPaths(ids)).Query(func(rows pgx.Rows) error {
		public, private := make([][]property, len(ids)), make([][]property, len(ids))
		var n int64
		var kind string
		var name, value pgtype.Text
		var p property
		_, err := pgx.ForEachRow(rows, []any{&n, &p.id, &kind, &name, &value}, func() error {
			if kind != publicKind && kind != privateKind {
				kind = kindOf(kind, ids[n-1])
			}
			p.name, p.value = name.String, value.String
			switch {
			case !name.Valid:
			case kind == publicKind:
				public[n-1] = append(public[n-1], p)
			case kind == privateKind:
				private[n-1] = append(private[n-1], p)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, id := range ids {
			if h := t.snap.Handles[id]; h != nil {
				var spare []int64
				h.Full = true
				h.Public, h.Rows.Public, spare = sortProperties(public[i], spare)
				h.Private, h.Rows.Private, spare = sortProperties(private[i], spare)
				if len(spare) > 0 {
					t.spare[h.Rows.Handle] = spare
				}
			}
		}
		return nil
	})
}

// kindOf decides for a row whose xpath does not start with that of its parent:
// NCMP's updates write them without doubling apostrophes.
func kindOf(xpath, id string) string {
	rest := strings.TrimPrefix(xpath, "/dmi-registry/cm-handles[@id='"+id+"']")
	switch {
	case strings.HasPrefix(rest, publicStep):
		return publicKind
	case strings.HasPrefix(rest, privateStep):
		return privateKind
	}
	return ""
}

// sortProperties brings rows into the form of a Handle. Two rows of one name,
// which an older system can leave, count as the older one; the other is spare.
func sortProperties(rows []property, spare []int64) ([]inventory.Property, []int64, []int64) {
	slices.SortFunc(rows, func(a, b property) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
	})
	ps := make([]inventory.Property, 0, len(rows))
	ids := make([]int64, 0, len(rows))
	for _, r := range rows {
		if len(ps) > 0 && ps[len(ps)-1].Name == r.name {
			spare = append(spare, r.id)
			continue
		}
		ps = append(ps, inventory.Property{Name: r.name, Value: r.value})
		ids = append(ids, r.id)
	}
	return ps, ids, spare
}
