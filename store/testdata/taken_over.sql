-- What NCMP let in: one alternate id twice, an id that is another's alternate
-- id, apostrophes that were not doubled, forbidden ids, a DELETING leftover,
-- a synced handle with data of its own.
create function pg_temp.node(id bigint, parent bigint, xpath text, attributes jsonb) returns void language sql as $$
    insert into fragment (id, xpath, attributes, anchor_id, parent_id) select $1, $3, $4, a.id, $2 from anchor a where a.name = 'ncmp-dmi-registry'
$$;
create function pg_temp.handle(id bigint, name text, alternate text, state text) returns void language sql as $$
    select pg_temp.node($1, 1, '/dmi-registry/cm-handles[@id=''' || replace($2, '''', '''''') || ''']',
        jsonb_build_object('id', $2, 'alternate-id', $3, 'module-set-tag', '', 'data-producer-identifier', ''));
    select pg_temp.node($1 + 1, $1, '/dmi-registry/cm-handles[@id=''' || replace($2, '''', '''''') || ''']/state',
        jsonb_build_object('cm-handle-state', $4, 'last-update-time', '2026-02-03T04:05:06.007+0000'));
$$;
select pg_temp.handle(1010, 'twin-late', '/twice', 'READY');
select pg_temp.handle(1000, 'twin-early', '/twice', 'READY');
select pg_temp.handle(1020, 'shadowed', '', 'ADVISED');
select pg_temp.handle(1030, 'shadow', 'shadowed', 'ADVISED');
select pg_temp.handle(1040, 'O''Brien', '', 'ADVISED');
select pg_temp.handle(1050, 'a/b c', '  ', 'ADVISED');
select pg_temp.handle(1060, 'left-over', '/left', 'DELETING');
select pg_temp.handle(1070, 'long', repeat(md5('x'), 200), 'ADVISED');
select pg_temp.handle(1080, 'synced', '', 'READY');
-- written by an update: neither the parent's nor its own apostrophe is doubled
select pg_temp.node(1042, 1040, '/dmi-registry/cm-handles[@id=''O''Brien'']/public-properties[@name=''it''s'']', '{"name": "it''s", "value": "odd"}');
select pg_temp.node(1043, 1040, '/dmi-registry/cm-handles[@id=''O''Brien'']/additional-properties[@name=''key'']', '{"name": "key", "value": "odd secret"}');
select pg_temp.node(1044, 1040, '/dmi-registry/cm-handles[@id=''O''''Brien'']/additional-properties[@name=''key'']', '{"name": "key", "value": "second"}');
select pg_temp.node(1045, 1041, '/dmi-registry/cm-handles[@id=''O''Brien'']/state/lock-reason', '{"reason": "MODULE_UPGRADE", "details": "d"}');
insert into schema_set (name, dataspace_id) select 'synced', id from dataspace where name = 'NFP-Operational';
insert into anchor (name, schema_set_id, dataspace_id)
select v.name, s.id, s.dataspace_id from schema_set s, (values ('synced'), ('other')) v (name) where s.name = 'synced';
insert into fragment (id, xpath, attributes, anchor_id) select 2000 + a.id, '/netconf-state', '{}', a.id from anchor a join dataspace d on d.id = a.dataspace_id and d.name = 'NFP-Operational';
insert into fragment (id, xpath, attributes, anchor_id, parent_id) select 3000 + f.id, '/netconf-state/schemas', '{}', f.anchor_id, f.id from fragment f where f.xpath = '/netconf-state';
