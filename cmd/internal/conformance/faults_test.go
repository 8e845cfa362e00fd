package conformance_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

// refuse makes the database raise an error for rows that match.
func (w *worker) refuse(t *testing.T, when, code string) {
	t.Helper()
	row := "new"
	if strings.Contains(when, "delete") {
		row = "old"
	}
	w.exec(t, fmt.Sprintf(`
		create or replace function refuse() returns trigger language plpgsql as $$ begin
			raise exception 'no' using errcode = '%s';
		end $$;
		create trigger refuse before %s on fragment for each row when (%s.attributes::text like '%%refuse-me%%') execute function refuse()`, code, when, row))
}

func (w *worker) refuseNoMore(t *testing.T) {
	t.Helper()
	w.exec(t, `drop trigger refuse on fragment`)
}

// A handle that cannot be deleted stays as it was, its neighbours go, and only
// of those is told that they are gone. Later it can be removed as any other.
func TestHandleThatCannotBeDeleted(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"P0001", "23514", "XX000"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			w := newWorker(t)
			w.send(t, created(`"cmHandle":"a"`, `"cmHandle":"refuse-me"`, `"cmHandle":"c"`), to("READY", "a", "refuse-me"))
			w.refuse(t, "delete", code)
			told := w.send(t, register(`{"removedCmHandles":["a","ghost","refuse-me","c"]}`))
			require.Equal(t, []string{
				`a update {"cmHandleState":"READY"} {"cmHandleState":"DELETING"}`, "a delete",
				`c update {"cmHandleState":"ADVISED"} {"cmHandleState":"DELETING"}`, "c delete",
				"e: 2 ok; remove ghost " + notFound + "; remove refuse-me 108 refused by PostgreSQL (SQLSTATE " + code + ")",
			}, told)
			require.Contains(t, w.stored(t, "refuse-me")["/state"], "READY", "it is not left in DELETING")
			w.requireSound(t)
			w.refuseNoMore(t)
			require.Len(t, w.send(t, register(`{"removedCmHandles":["refuse-me"]}`)), 3)
			w.requireSound(t)
		})
	}
}

// One row that the database refuses costs one entry of hundreds of records.
func TestOneRefusedRowAmongManyRecords(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	w.refuse(t, "insert", "23514")
	var records []inventory.Record
	for i := range 500 {
		id := fmt.Sprintf("ch-%d", i)
		if i == 321 {
			id = "refuse-me"
		}
		r := created(fmt.Sprintf(`"cmHandle":%q`, id))
		r.Headers = append(r.Headers, header("ce_outcome", "failures"))
		records = append(records, r)
	}
	told := w.send(t, records...)
	require.Len(t, told, 500)
	require.Equal(t, "e: 0 ok; create refuse-me 108 refused by PostgreSQL (SQLSTATE 23514)", told[321])
	require.Equal(t, "ch-322 create "+advised, told[322], "order was kept")
	w.requireSound(t)
}

// Trouble of the server's is waited for: nothing is refused, dropped or set
// aside for it.
func TestServerTroubleIsNoFaultOfTheData(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	for _, code := range []string{"53100", "53200", "53300", "57P03", "55P03", "08006", "58030"} {
		w.refuse(t, "insert", code)
		b := w.first.batch(created(`"cmHandle":"a"`), created(`"cmHandle":"refuse-me"`), register(`{`))
		for range 3 {
			_, err := w.apply.Apply(t.Context(), b)
			require.ErrorIs(t, err, inventory.ErrTransient, code)
		}
		require.Empty(t, w.take(t), code)
		w.refuseNoMore(t)
		_, err := w.apply.Apply(t.Context(), b)
		require.NoError(t, err)
		require.Equal(t, []string{"a create " + advised, "e: 1 ok", "refuse-me create " + advised, "e: 1 ok", "dead letter bad-json", "e: 0 ok;   108 unexpected end of JSON"}, w.told(t))
		w.wipe(t)
	}
}

// A server that has become slow is asked for less at a time, until it can.
func TestBatchThatTheServerCannotFinishInTimeIsSplit(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(s *settings) { s.store = func(c *store.Config) { c.StatementTimeout = 400 * time.Millisecond } })
	w.exec(t, `
		create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.02); return new; end $$;
		create trigger slow before insert on fragment for each row execute function slow()`)
	var records []inventory.Record
	for i := range 32 {
		records = append(records, created(fmt.Sprintf(`"cmHandle":"ch-%d"`, i)))
	}
	told := w.send(t, records...)
	require.Len(t, told, 64)
	for i := range 32 {
		require.Equal(t, fmt.Sprintf("ch-%d create %s", i, advised), told[2*i])
	}
}

// race applies one batch on each of several partitions at the same time.
func (w *worker) race(t *testing.T, records ...inventory.Record) []string {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(records))
	for i, r := range records {
		p := w.partition(t, int32(i+1))
		b := p.batch(r)
		wg.Go(func() { _, errs[i] = w.apply.Apply(t.Context(), b) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return w.told(t)
}

// Workers that register the same at the same moment: one of them does, the
// others find it done, or taken.
func TestTheSameAtTheSameTime(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	for round := range 20 {
		same := created(`"cmHandle":"a","alternateId":"/x"`)
		told := w.race(t, same, same, same, same)
		count := map[string]int{}
		for _, s := range told {
			count[s]++
		}
		require.Equal(t, map[string]int{"a create " + fmt.Sprintf(madeOf, "/x"): 1, "e: 1 ok": 4}, count, "round %d", round)

		told = w.race(t, created(`"cmHandle":"b","alternateId":"/y"`), created(`"cmHandle":"c","alternateId":"/y"`), created(`"cmHandle":"/y","alternateId":"c"`), created(`"cmHandle":"d","alternateId":"b"`))
		made := 0
		for _, s := range told {
			if strings.Contains(s, " create {") {
				made++
			}
		}
		require.Positive(t, made)
		w.requireSound(t)
		w.wipe(t)
	}
}

// A handle that another worker removes in the middle of a batch is not found;
// its neighbours are changed, and what is told is what was committed.
func TestOneHandleRemovedUnderABatch(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	var entries, all []string
	for i := range 100 {
		entries = append(entries, fmt.Sprintf(`"cmHandle":"ch-%d"`, i))
		all = append(all, fmt.Sprintf("ch-%d", i))
	}
	for range 5 {
		w.send(t, created(entries...))
		ready, deleted, missing := 0, 0, 0
		for _, s := range w.race(t, to("READY", all...), register(`{"removedCmHandles":["ch-50"]}`)) {
			switch {
			case strings.HasSuffix(s, `"cmHandleState":"READY"}`):
				ready++
			case strings.HasSuffix(s, " delete"):
				deleted++
			case strings.Contains(s, "state ch-50 "+notFound):
				missing++
			}
		}
		require.Equal(t, 1, deleted)
		require.Equal(t, 100-missing, ready)
		require.Equal(t, []string{"99"}, w.column(t, `select count(*)::text from fragment where attributes ->> 'cm-handle-state' = 'READY'`))
		w.requireSound(t)
		w.wipe(t)
	}
}

// State and trust level of one handle come from two topics: neither is lost.
func TestStateAndTrustAtTheSameTime(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	for range 10 {
		w.send(t, created(`"cmHandle":"a"`))
		w.race(t, to("READY", "a"), heartbeat("a", "NONE"), register(`{"updatedCmHandles":[{"cmHandle":"a","dataProducerIdentifier":"p"}]}`))
		h, err := w.store.GetHandle(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, inventory.Ready, h.State.State)
		require.Equal(t, inventory.TrustNone, h.Trust)
		require.Equal(t, "p", h.DataProducerID)
		w.wipe(t)
	}
}

// Many partitions share two connections.
func TestManyPartitionsOnFewConnections(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(s *settings) { s.store = func(c *store.Config) { c.MaxConnections = 2 } })
	var records []inventory.Record
	for i := range 12 {
		records = append(records, created(fmt.Sprintf(`"cmHandle":"ch-%d"`, i)))
	}
	require.Len(t, w.race(t, records...), 24)
}

// Handles that come and go leave nothing behind, in any table but the history.
func TestHandlesThatComeAndGoLeaveNothing(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	counts := func() []string {
		return w.column(t, `
			select c.relname || ' ' || (xpath('/row/n/text()', query_to_xml('select count(*) n from ' || c.oid::regclass, false, true, '')))[1]::text
			from pg_class c join pg_namespace n on n.oid = c.relnamespace
			where c.relkind = 'r' and n.nspname in ('public', 'ncmp_inventory') and c.relname not like '%history%' order by 1`)
	}
	w.send(t, register(`{}`))
	before := counts()
	require.NotEmpty(t, before)
	var entries []string
	for i := range 300 {
		entries = append(entries, fmt.Sprintf(`"cmHandle":"ch-%d","alternateId":"/%d","trustLevel":"NONE","publicCmHandleProperties":{"a":"b"},"cmHandleProperties":{"c":"d"}`, i, i))
	}
	for range 5 {
		w.send(t, created(entries...))
		w.send(t, register(`{"removedCmHandles":[`+ids("ch-%d", 0, 300)+`]}`))
		require.Equal(t, before, counts())
	}
}

// Two partitions take turns with one handle, across its removals: the sequence
// of its events grows with every one of them.
func TestSequenceGrowsAcrossPartitionsAndRemovals(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	turns := []*partition{w.partition(t, 1), w.partition(t, 2)}
	for i := range 30 {
		r := created(`"cmHandle":"a"`)
		if i%2 == 1 {
			r = register(`{"removedCmHandles":["a"]}`)
		}
		p := turns[(i+i/2)%2]
		_, err := w.apply.Apply(t.Context(), p.batch(r))
		require.NoError(t, err)
	}
	kinds := w.column(t, `select right(convert_from(value, 'UTF8'), 10) from ncmp_inventory.outbox where kind = 0 order by id`)
	require.Len(t, kinds, 45)
	for i, kind := range kinds {
		require.Contains(t, kind, []string{".create", ".update", ".delete"}[i%3])
	}
}
