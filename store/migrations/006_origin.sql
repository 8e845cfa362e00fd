-- Where a record that was sent again first stood. What it did counts by that when
-- a later replay is judged. Ordinary entries have none.
alter table ncmp_inventory.history
    add column origin_topic_id  uuid,
    add column origin_partition int,
    add column origin_offset    bigint,
    add column origin_time      timestamptz;
