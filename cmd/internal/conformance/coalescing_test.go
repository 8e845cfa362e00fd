package conformance_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
	"ncmp-inventory/lcm"
	"ncmp-inventory/store/storetest"
)

// The law of coalescing on real PostgreSQL: records applied as batches, with
// boundaries drawn at random, leave the same rows, references, trust levels,
// messages and history, byte for byte, as records applied one by one. Only row
// ids and sequences may differ; the clock stands still.
func TestLawOfCoalescing(t *testing.T) {
	one, many := newSide(t), newSide(t)
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			records := drawRecords(r, 5+r.IntN(40))
			one.wipe(t)
			many.wipe(t)
			for _, rec := range records {
				one.apply(t, rec)
			}
			for rest := records; len(rest) > 0; {
				n := min(1+r.IntN(12), len(rest))
				many.apply(t, rest[:n]...)
				rest = rest[n:]
			}
			require.Equal(t, one.dump(t), many.dump(t))
		})
	}
}

type side struct {
	pool     *pgxpool.Pool
	apply_   *inventory.Registrar
	decoder  *consumer.EventDecoder
	topic    inventory.Partition
	position int64
	epoch    int64
}

func newSide(t *testing.T) *side {
	db := storetest.Open(t)
	s := openStore(t, db)
	clock := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	enc, err := lcm.NewEncoder(lcm.Config{Version: lcm.V2})
	require.NoError(t, err)
	x := &side{
		pool: db.Pool(t), decoder: consumer.NewEventDecoder(consumer.DecoderConfig{}),
		topic: inventory.Partition{TopicID: [16]byte{9}, Topic: "law"},
		apply_: inventory.NewRegistrar(s, enc, inventory.RegistrarConfig{
			PlannerConfig: inventory.PlannerConfig{Outcomes: inventory.OutcomesAll, MaxLCMBytes: 1200, Facts: true},
			Now:           func() time.Time { return clock },
		}),
	}
	c, err := s.Start(t.Context(), x.topic, "cluster", "law", 0)
	require.NoError(t, err)
	x.epoch = c.OwnerEpoch
	return x
}

func (x *side) wipe(t *testing.T) {
	_, err := x.pool.Exec(t.Context(), `
		delete from fragment where parent_id is not null;
		delete from ncmp_inventory.reference;
		delete from ncmp_inventory.trust;
		delete from ncmp_inventory.outbox;
		delete from ncmp_inventory.history`)
	require.NoError(t, err)
}

func (x *side) apply(t *testing.T, records ...inventory.Record) {
	t.Helper()
	b := &inventory.Batch{Partition: x.topic, First: x.position, OwnerEpoch: x.epoch, LeaderEpoch: 0}
	for _, rec := range records {
		rec.Offset = x.position
		x.position++
		x.decoder.Decode(&rec, false)
		b.Records = append(b.Records, rec)
	}
	b.Next = x.position
	_, err := x.apply_.Apply(t.Context(), b)
	require.NoError(t, err)
}

func (x *side) dump(t *testing.T) []string {
	t.Helper()
	rows, err := x.pool.Query(t.Context(), `
		(select 'row ' || f.xpath || ' < ' || p.xpath || ' ' || f.attributes::text from fragment f join fragment p on p.id = f.parent_id order by f.xpath collate "C")
		union all
		(select 'reference ' || key || ' ' || owner from ncmp_inventory.reference order by key)
		union all
		(select 'trust ' || handle || ' ' || level from ncmp_inventory.trust order by handle)
		union all
		(select 'message ' || kind || ' ' || coalesce(encode(key, 'escape'), '-') || ' ' || encode(headers, 'escape') || ' ' || coalesce(encode(value, 'escape'), '-')
			from ncmp_inventory.outbox order by id)
		union all
		(select 'history ' || handle || ' ' || step || ' ' || source_offset || ' ' || source_time || ' ' || coalesce(event_id::text, '-') || ' ' || cause_id || ' ' || cause_source
			|| ' ' || coalesce(before, '-') || ' ' || coalesce(after, '-') from ncmp_inventory.history order by handle, id)`)
	require.NoError(t, err)
	var out []string
	for rows.Next() {
		var s string
		require.NoError(t, rows.Scan(&s))
		out = append(out, s)
	}
	require.NoError(t, rows.Err())
	return out
}

// drawRecords draws records that collide as much as possible: few ids, which
// are alternate ids as well, and some garbage.
func drawRecords(r *rand.Rand, n int) []inventory.Record {
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	id := func() string { return pick("a", "b", "c", "d") }
	props := func() map[string]any {
		m := map[string]any{}
		for range r.IntN(3) {
			m[pick("p", "q", "it's")] = pick("1", "2", "x\"y")
		}
		return m
	}
	handle := func() map[string]any {
		h := map[string]any{"cmHandle": id()}
		if r.IntN(2) == 0 {
			h["alternateId"] = pick("", " ", "a", "b", "/x", "/y'z")
		}
		if r.IntN(3) == 0 {
			h["dataProducerIdentifier"] = pick("", "p1", "p2")
		}
		if r.IntN(2) == 0 {
			h["publicCmHandleProperties"] = props()
		}
		if r.IntN(2) == 0 {
			h["cmHandleProperties"] = props()
		}
		if r.IntN(6) == 0 {
			h["trustLevel"] = pick("NONE", "COMPLETE", "SOME")
		}
		if r.IntN(20) == 0 {
			h["cmHandle"] = pick("bad id", "", "a/b")
		}
		if r.IntN(25) == 0 {
			h["publicCmHandleProperties"] = map[string]any{"big": fmt.Sprintf("%01500d", 7)}
		}
		return h
	}
	list := func(n int, f func() any) []any {
		var l []any
		for range r.IntN(n) {
			l = append(l, f())
		}
		return l
	}
	var out []inventory.Record
	for i := range n {
		ceType, body := registrationType, any(nil)
		switch k := r.IntN(20); {
		case k < 11:
			reg := map[string]any{"dmiPlugin": "http://dmi:1"}
			if r.IntN(2) == 0 {
				reg["createdCmHandles"] = list(4, func() any { return handle() })
			}
			if r.IntN(3) == 0 {
				reg["removedCmHandles"] = list(3, func() any { return id() })
			}
			if r.IntN(3) == 0 {
				reg["updatedCmHandles"] = list(3, func() any {
					h := handle()
					if r.IntN(3) == 0 {
						h["publicCmHandleProperties"] = map[string]any{"p": nil}
					}
					return h
				})
			}
			if r.IntN(4) == 0 {
				reg["upgradedCmHandles"] = map[string]any{"cmHandles": list(3, func() any { return id() }), "moduleSetTag": pick("", "T1", "T2")}
			}
			body = reg
		case k < 18:
			ceType = stateChangeType
			change := func() any {
				s := map[string]any{"cmHandleState": pick("READY", "READY", "ADVISED", "LOCKED", "DELETED", "DELETING", "nonsense")}
				if r.IntN(3) == 0 {
					s["lockReason"] = map[string]any{"reason": "MODULE_SYNC_FAILED", "details": pick("1", "2")}
				}
				if r.IntN(3) == 0 {
					s["dataSyncEnabled"] = r.IntN(2) == 0
				}
				c := map[string]any{"cmHandle": id(), "state": s}
				if r.IntN(4) == 0 {
					c["moduleSetTag"] = pick("", "T1", "T2")
				}
				return c
			}
			body = change()
			if r.IntN(3) == 0 {
				body = map[string]any{"cmHandles": list(4, change)}
			}
		case k < 19:
			ceType = "org.onap.cps.ncmp.events.trustlevel.DeviceTrustLevel"
			body = map[string]any{"data": map[string]any{"trustLevel": pick("NONE", "COMPLETE", "x")}}
		}
		value, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		if r.IntN(15) == 0 {
			value = value[:len(value)/2]
		}
		ceID := fmt.Sprintf("e%d", i)
		if ceType != registrationType && ceType != stateChangeType {
			ceID = id()
		}
		out = append(out, inventory.Record{Key: []byte(id()), Value: value, Headers: []inventory.Header{
			{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: []byte(ceID)},
			{Key: "ce_source", Value: []byte("/law")}, {Key: "ce_type", Value: []byte(ceType)},
			{Key: "content-type", Value: []byte("application/json")},
		}})
	}
	return out
}
