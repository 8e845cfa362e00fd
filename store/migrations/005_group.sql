-- The consumer group that works on this database, and until when that is
-- certain. Two groups would take the partitions from each other without end.
create table ncmp_inventory.consumer_group (
    singleton boolean primary key default true check (singleton),
    name      text not null,
    until     timestamptz not null
);
