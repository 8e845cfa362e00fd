package store

// check is one invariant: its statement yields what breaks it. $1 is the
// inventory's anchor and $2, only used beside $1, its root data node.
type check struct {
	name, text string
	notice     bool
	sql        string
}

const verifyCounts = `
select (select count(*) from fragment where parent_id = $2 and starts_with(xpath, '/dmi-registry/cm-handles[')),
       (select count(*) from fragment where anchor_id = $1)`

// handleRows are the stored handles: what they are called, and what they
// call themselves.
const handleRows = `
h as (select id, xpath, attributes, attributes ->> 'id' as handle
      from fragment where anchor_id = $1 and parent_id = $2 and starts_with(xpath, '/dmi-registry/cm-handles['))`

// stateRows are the state rows of handles.
const stateRows = handleRows + `,
s as (select s.id, s.xpath, s.attributes, s.attributes ->> 'cm-handle-state' as state, h.id as handle_id
      from h join fragment s on s.parent_id = h.id and s.xpath like '%/state')`

// claimedKeys are the keys that handles bear, each with the handle that is to
// own it: an id wins, then the lowest row id.
const claimedKeys = handleRows + `,
claims as (
  select handle collate "C" as key, handle collate "C" as owner, 0 as rank, id from h where handle <> ''
  union all
  select btrim(attributes ->> 'alternate-id', E' \t\n\r') collate "C", handle collate "C", 1, id from h
  where handle <> '' and btrim(attributes ->> 'alternate-id', E' \t\n\r') <> ''),
owners as (select distinct on (key) key, owner from claims order by key, rank, id)`

// messageName is a message of the outbox as outbox list names it.
const messageName = `(array['lcm', 'inventory', 'outcomes', 'dead-letters'])[kind + 1] || '/' || id`

var checks = []check{
	{name: "root", text: "data nodes without a parent other than /dmi-registry", sql: `
select xpath from fragment where anchor_id = $1 and parent_id is null and id <> $2`},

	{name: "parent-anchor", text: "data nodes whose parent lies in another anchor", sql: `
select f.xpath from fragment f join fragment p on p.id = f.parent_id where f.anchor_id = $1 and p.anchor_id <> $1`},

	{name: "parent-xpath", text: "data nodes whose xpath does not start with their parent's", notice: true, sql: `
select f.xpath from fragment f join fragment p on p.id = f.parent_id
where f.anchor_id = $1 and not starts_with(f.xpath, p.xpath || '/')`},

	{name: "unknown-child", text: "data nodes that the inventory does not know", sql: `
with l1 as (select id, xpath from fragment where parent_id = $2),
l2 as (select c.id, c.xpath, p.xpath as parent from l1 p join fragment c on c.parent_id = p.id),
l3 as (select c.id, c.xpath, p.xpath as parent from l2 p join fragment c on c.parent_id = p.id),
l4 as (select c.id, c.xpath, p.xpath as parent from l3 p join fragment c on c.parent_id = p.id)
select xpath from l1 where not starts_with(xpath, '/dmi-registry/cm-handles[@id=')
union all
select xpath from l2 where not (
  xpath like '%/state' or xpath like '%]' and (xpath like '%/public-properties[@name=%' or xpath like '%/additional-properties[@name=%'))
union all
select xpath from l3 where not (parent like '%/state' and (xpath like '%/lock-reason' or xpath like '%/datastores'))
union all
select xpath from l4 where not (parent like '%/datastores' and (xpath like '%/operational' or xpath like '%/running'))
union all
select c.xpath from l4 p join fragment c on c.parent_id = p.id
union all
select xpath from fragment where anchor_id = $1 and false`},

	{name: "attributes", text: "data nodes whose attributes are no JSON object", sql: `
select xpath from fragment where anchor_id = $1 and jsonb_typeof(attributes) is distinct from 'object'`},

	{name: "handle-id", text: "CM handles whose id leaf differs from their xpath's key", sql: `
with ` + handleRows + `
select xpath from h
where xpath is distinct from '/dmi-registry/cm-handles[@id=''' || replace(handle, '''', '''''') || ''']'`},

	{name: "property-name", text: "properties whose name leaf differs from their xpath's key", sql: `
with ` + handleRows + `
select p.xpath from h join fragment p on p.parent_id = h.id and p.xpath like '%]'
where right(p.xpath, length(p.attributes ->> 'name') + 10)
  is distinct from '[@name=''' || (p.attributes ->> 'name') || ''']'
  and right(p.xpath, length(replace(p.attributes ->> 'name', '''', '''''')) + 10)
  is distinct from '[@name=''' || replace(p.attributes ->> 'name', '''', '''''') || ''']'`},

	{name: "property-twice", text: "properties that a CM handle has twice", notice: true, sql: `
with ` + handleRows + `
select min(p.xpath) from h join fragment p on p.parent_id = h.id and p.xpath like '%]'
group by h.id, p.xpath like '%/additional-properties[@name=%', p.attributes ->> 'name' having count(*) > 1`},

	{name: "state-missing", text: "CM handles without a state", sql: `
with ` + handleRows + `
select xpath from h where not exists (select from fragment s where s.parent_id = h.id and s.xpath like '%/state')`},

	{name: "state-twice", text: "CM handles with more than one state", sql: `
with ` + stateRows + `
select min(xpath) from s group by handle_id having count(*) > 1`},

	{name: "state-unknown", text: "CM handles in a state that is never stored", sql: `
with ` + stateRows + `
select xpath || ' is ' || coalesce(state, 'not set') from s
where state is null or state not in ('ADVISED', 'READY', 'LOCKED', 'DELETING')`},

	{name: "deleting", text: "CM handles left in DELETING by an older system", notice: true, sql: `
with ` + stateRows + `
select xpath from s where state = 'DELETING'`},

	{name: "ready-locked", text: "CM handles that are READY and have a lock reason", sql: `
with ` + stateRows + `
select s.xpath from s where state = 'READY'
and exists (select from fragment l where l.parent_id = s.id and l.xpath like '%/lock-reason')`},

	{name: "reference-missing", text: "ids and alternate ids that no reference stands for; an update of the CM handle that names them makes one", sql: `
with ` + claimedKeys + `
select key || ' of ' || owner from owners where octet_length(key) <= 2600
and not exists (select from ncmp_inventory.reference r where r.key = owners.key)`},

	{name: "reference-owner", text: "references that belong to another CM handle", sql: `
with ` + claimedKeys + `
select r.key || ' belongs to ' || o.owner || ', not to ' || r.owner
from owners o join ncmp_inventory.reference r on r.key = o.key where r.owner <> o.owner`},

	{name: "reference-orphan", text: "references that no CM handle bears", sql: `
with ` + claimedKeys + `
select key from ncmp_inventory.reference r where not exists (select from owners o where o.key = r.key)`},

	{name: "key-shared", text: "ids and alternate ids that several CM handles bear", notice: true, sql: `
with ` + claimedKeys + `
select key || ' is borne by ' || string_agg(owner, ', ' order by rank, id)
from claims group by key having count(distinct owner) > 1`},

	{name: "trust-orphan", text: "trust levels of CM handles that are not stored", sql: `
with ` + handleRows + `
select t.handle from ncmp_inventory.trust t where not exists (select from h where h.handle = t.handle)`},

	{name: "trust-unknown", text: "trust levels that are never stored", sql: `
select handle || ' is ' || level from ncmp_inventory.trust where level <> 'NONE'`},

	{name: "outbox-parked", text: "messages that the broker would not take", sql: `
select ` + messageName + ` || ': ' || parked from ncmp_inventory.outbox where parked is not null order by kind, id`},

	{name: "outbox-old", text: "messages that wait to be published for more than an hour", sql: `
select ` + messageName + ` from ncmp_inventory.outbox
where parked is null and created < clock_timestamp() - interval '1 hour' order by created`},

	{name: "outbox-sequence", text: "the sequence of messages lies below a message that it gave out", sql: `
select 'highest ' || max(id) || ', sequence ' || (select last_value from ncmp_inventory.outbox_sequence)
from ncmp_inventory.outbox having max(id) > (select last_value from ncmp_inventory.outbox_sequence)`},

	{name: "fragment-sequence", text: "the sequence of data nodes lies below a data node's id", sql: `
select 'highest ' || max(id) || ', sequence ' || (select last_value from fragment_id_seq)
from fragment having max(id) > (select last_value from fragment_id_seq)`},

	{name: "position", text: "stored positions that cannot be", sql: `
select topic || '/' || partition || ' at ' || next_offset from ncmp_inventory.position
where next_offset < 0 or partition < 0 or leader_epoch < -1 or owner_epoch < 0 or dead_run < 0`},

	{name: "position-twice", text: "topics that have positions under more than one topic id: deleted and created anew", notice: true, sql: `
select topic || ' in cluster ' || cluster_id from ncmp_inventory.position
group by cluster_id, topic having count(distinct topic_id) > 1`},
}
