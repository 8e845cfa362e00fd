-- What happened to each handle, written with the change itself. One index, and
-- no key to any other table: a row costs one insert. Old rows go in small
-- deletes; the thresholds below keep the vacuum after them in proportion.
create sequence ncmp_inventory.history_sequence as bigint cache 1;
create table ncmp_inventory.history (
    id            bigint not null default nextval('ncmp_inventory.history_sequence'),
    at            timestamptz not null,
    source_time   timestamptz not null, -- of the source record
    source_offset bigint not null,
    partition     int not null,
    step          smallint not null,
    topic_id      uuid not null,
    event_id      uuid, -- of the event that tells it
    handle        text collate "C" not null,
    cause_id      text not null, -- the source event
    cause_source  text not null,
    before        text, -- visible attributes that changed, as JSON
    after         text,
    primary key (handle, id)
) with (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 50000,
    autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_insert_threshold = 200000,
    autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 10000
);
alter sequence ncmp_inventory.history_sequence owned by ncmp_inventory.history.id;

-- Partitions that a worker halted, until it or another one goes on.
create table ncmp_inventory.halt (
    topic_id  uuid not null,
    partition int not null,
    topic     text not null,
    kind      text not null,
    reason    text not null,
    owner     text not null,
    since     timestamptz not null default clock_timestamp(),
    primary key (topic_id, partition)
);

-- Dead letters that were sent again, by where their record first stood. A row
-- without a target offset was about to be sent: whether it was, the target
-- partition tells from target_from on.
create table ncmp_inventory.replay (
    topic_id         uuid not null,
    partition        int not null,
    source_offset    bigint not null,
    -- The first of a chain: a replayed record can fail again.
    origin_topic_id  uuid not null,
    origin_partition int not null,
    origin_offset    bigint not null,
    origin_time      timestamptz not null,
    attempt          int not null,
    target_topic     text not null,
    target_topic_id  uuid not null,
    target_partition int not null,
    target_from      bigint not null,
    target_offset    bigint,
    at               timestamptz not null default clock_timestamp(),
    primary key (topic_id, partition, source_offset)
);
create unique index replay_target on ncmp_inventory.replay (target_topic_id, target_partition, target_offset);
