-- The worker's own tables. They live apart from CPS's, which are not ours to change.
create schema ncmp_inventory;

create table ncmp_inventory.migration (
    version int primary key,
    name    text not null,
    applied timestamptz not null default now()
);

-- CM-handle ids and alternate ids are one namespace: one row per key in use.
-- The row is also the lock that orders everything done to its handle.
create table ncmp_inventory.reference (
    key   text collate "C" primary key,
    owner text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 500);

-- How far each input partition is applied. Topics are told apart by their id:
-- one created anew under the same name starts from nothing.
create table ncmp_inventory.position (
    topic_id     uuid not null,
    partition    int not null,
    topic        text not null,
    cluster_id   text not null,
    next_offset  bigint not null,
    leader_epoch int not null default -1,
    owner_epoch  bigint not null default 0,
    owner        text not null default '',
    dead_run     int not null default 0,
    moved        boolean not null default false,
    updated      timestamptz not null default now(),
    primary key (topic_id, partition)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Only levels other than COMPLETE are stored.
create table ncmp_inventory.trust (
    handle text collate "C" primary key,
    level  text not null
);

-- CACHE 1: a sequence that handed out blocks would break the order per handle.
create sequence ncmp_inventory.outbox_sequence as bigint cache 1;

-- Messages that wait to be published. Key, headers and value are bytes: a
-- record that is no valid text must not stop its own dead letter.
create table ncmp_inventory.outbox (
    id      bigint not null default nextval('ncmp_inventory.outbox_sequence'),
    kind    smallint not null,
    hash    int not null,
    key     bytea,
    headers bytea not null,
    value   bytea,
    created timestamptz not null default clock_timestamp(),
    parked  text,
    primary key (kind, id)
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 10000
);
alter sequence ncmp_inventory.outbox_sequence owned by ncmp_inventory.outbox.id;
create index outbox_parked on ncmp_inventory.outbox (kind, key) where parked is not null;

create table ncmp_inventory.relay (
    singleton  boolean primary key default true check (singleton),
    relay_id   text,
    holder     text,
    generation bigint not null default 0,
    until      timestamptz
);

create table ncmp_inventory.canary (
    singleton boolean primary key default true check (singleton),
    written   timestamptz not null
);
