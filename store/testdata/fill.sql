with handles as (
    insert into fragment (id, xpath, attributes, anchor_id, parent_id)
    select 1000000 + n * 10, '/dmi-registry/cm-handles[@id=''h' || n || ''']', jsonb_build_object('id', 'h' || n, 'alternate-id', '/alt/' || n),
           r.anchor_id, r.id
    from generate_series(1, :handles) n, fragment r where r.xpath = '/dmi-registry'
    returning id, xpath, anchor_id
)
insert into fragment (id, xpath, attributes, anchor_id, parent_id)
select h.id + p, h.xpath || case when p = 7 then '/state' else '/public-properties[@name=''p' || p || ''']' end,
       case when p = 7 then '{"cm-handle-state": "READY"}'::jsonb else jsonb_build_object('name', 'p' || p, 'value', 'v') end,
       h.anchor_id, h.id
from handles h, generate_series(1, 7) p;
analyze fragment;
