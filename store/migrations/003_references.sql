-- Who owns which key among the handles that are stored already. What an older
-- system let in must not stop the migration: where two handles claim one key,
-- an id wins over an alternate id, then the lowest row id. A key longer than
-- an index row is left out.
insert into ncmp_inventory.reference (key, owner)
select distinct on (k.key) k.key, k.owner
from (
    select h.attributes ->> 'id' collate "C" as key, h.attributes ->> 'id' as owner, 0 as rank, h.id
    from fragment h
    join fragment r on r.id = h.parent_id and r.xpath = '/dmi-registry'
    join anchor a on a.id = r.anchor_id and a.name = 'ncmp-dmi-registry'
    join dataspace d on d.id = a.dataspace_id and d.name = 'NCMP-Admin'
    where h.xpath like '/dmi-registry/cm-handles[%'
    union all
    select btrim(h.attributes ->> 'alternate-id', E' \t\n\r') collate "C", h.attributes ->> 'id', 1, h.id
    from fragment h
    join fragment r on r.id = h.parent_id and r.xpath = '/dmi-registry'
    join anchor a on a.id = r.anchor_id and a.name = 'ncmp-dmi-registry'
    join dataspace d on d.id = a.dataspace_id and d.name = 'NCMP-Admin'
    where h.xpath like '/dmi-registry/cm-handles[%'
) k
where k.key <> '' and k.owner <> '' and octet_length(k.key) <= 2600 and octet_length(k.owner) <= 2600
order by k.key, k.rank, k.id
on conflict (key) do nothing;
