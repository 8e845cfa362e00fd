package conformance_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
	"ncmp-inventory/lcm"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

// worker is a worker without a broker: what a record's bytes come to in rows
// and messages.
type worker struct {
	db      *storetest.DB
	pool    *pgxpool.Pool
	store   *store.Store
	decoder *consumer.EventDecoder
	apply   *inventory.Registrar
	first   *partition
}

// settings are what a test may change.
type settings struct {
	store   func(*store.Config)
	planner inventory.PlannerConfig
	encoder lcm.Config
	decoder consumer.DecoderConfig
}

func newWorker(t *testing.T, change ...func(*settings)) *worker {
	t.Helper()
	return newWorkerOn(t, storetest.Open(t), change...)
}

func newWorkerOn(t *testing.T, db *storetest.DB, change ...func(*settings)) *worker {
	t.Helper()
	c := settings{encoder: lcm.Config{Version: lcm.V2}, planner: inventory.PlannerConfig{Outcomes: inventory.OutcomesAll}}
	for _, f := range change {
		f(&c)
	}
	enc, err := lcm.NewEncoder(c.encoder)
	require.NoError(t, err)
	w := &worker{db: db, pool: db.Pool(t), store: openStore(t, db, c.store), decoder: consumer.NewEventDecoder(c.decoder)}
	w.apply = inventory.NewRegistrar(w.store, enc, inventory.RegistrarConfig{PlannerConfig: c.planner})
	w.first = w.partition(t, 0)
	return w
}

// partition is one input partition that the worker owns.
type partition struct {
	w     *worker
	p     inventory.Partition
	next  int64
	epoch int64
}

func (w *worker) partition(t *testing.T, index int32) *partition {
	t.Helper()
	p := &partition{w: w, p: inventory.Partition{TopicID: [16]byte{3}, Topic: "in", Index: index}}
	c, err := w.store.Start(t.Context(), p.p, "cluster", "worker", 0)
	require.NoError(t, err)
	p.epoch, p.next = c.OwnerEpoch, c.Next
	return p
}

// batch decodes records into the partition's next batch.
func (p *partition) batch(records ...inventory.Record) *inventory.Batch {
	b := &inventory.Batch{Partition: p.p, First: p.next, OwnerEpoch: p.epoch}
	for _, r := range records {
		r.Offset = p.next
		p.next++
		p.w.decoder.Decode(&r, false)
		b.Records = append(b.Records, r)
	}
	b.Next = p.next
	return b
}

// send applies records as one batch and takes what is to be published.
func (w *worker) send(t *testing.T, records ...inventory.Record) []string {
	t.Helper()
	_, err := w.apply.Apply(t.Context(), w.first.batch(records...))
	require.NoError(t, err)
	return w.told(t)
}

// message is one message of the outbox.
type message struct {
	kind    inventory.MessageKind
	key     string
	headers []inventory.Header
	value   string
}

func (m *message) header(name string) string {
	for _, h := range m.headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// take empties the outbox.
func (w *worker) take(t *testing.T) []message {
	t.Helper()
	rows, err := w.pool.Query(t.Context(), `
		with gone as (delete from ncmp_inventory.outbox returning id, kind, key, headers, value)
		select kind, key, headers, value from gone order by id`)
	require.NoError(t, err)
	var all []message
	for rows.Next() {
		var m message
		var kind int16
		var key, headers, value []byte
		require.NoError(t, rows.Scan(&kind, &key, &headers, &value))
		m.kind, m.key, m.value, m.headers = inventory.MessageKind(kind), string(key), string(value), parseHeaders(t, headers)
		all = append(all, m)
	}
	require.NoError(t, rows.Err())
	return all
}

// told is take, as text: an LCM event by handle, kind and values, an outcome by
// event, failures and successes.
func (w *worker) told(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, m := range w.take(t) {
		out = append(out, m.text(t))
	}
	return out
}

func (m *message) text(t *testing.T) string {
	t.Helper()
	switch m.kind {
	case inventory.LCMEvent:
		var body struct {
			Event struct {
				OldValues, NewValues json.RawMessage
			}
		}
		require.NoError(t, json.Unmarshal([]byte(m.value), &body))
		kind := m.header("ce_type")
		kind = kind[strings.LastIndexByte(kind, '.')+1:]
		text := m.key + " " + kind
		if body.Event.OldValues != nil {
			text += " " + string(body.Event.OldValues)
		}
		if body.Event.NewValues != nil {
			text += " " + string(body.Event.NewValues)
		}
		return text
	case inventory.InventoryEvent:
		var body struct {
			Data struct {
				AttributeValueChange []struct{ OldAttributeValue, NewAttributeValue string }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(m.value), &body))
		c := body.Data.AttributeValueChange[0]
		return fmt.Sprintf("%s trust %s -> %s", m.key, c.OldAttributeValue, c.NewAttributeValue)
	case inventory.OutcomeEvent:
		var body outcome
		require.NoError(t, json.Unmarshal([]byte(m.value), &body))
		text := fmt.Appendf(nil, "%s: %d ok", body.Source.ID, body.Succeeded)
		for _, f := range body.Failures {
			text = fmt.Appendf(text, "; %s %s %s %s", f.Operation, f.CmHandle, f.ErrorCode, f.ErrorText)
		}
		if body.More > 0 {
			text = fmt.Appendf(text, "; %d more", body.More)
		}
		return string(text)
	}
	return "dead letter " + m.header("ncmp_reason")
}

type outcome struct {
	Source struct {
		Topic             string
		Partition, Offset int64
		ID                string
	}
	Failures []struct {
		CmHandle, Operation, ErrorCode, ErrorText, Details string
	}
	More      int
	Succeeded int
}

// event is a record in binary mode.
func event(id, ceType, data string, more ...inventory.Header) inventory.Record {
	return inventory.Record{Key: []byte("key"), Value: []byte(data), Bytes: len(data), Headers: append([]inventory.Header{
		{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: []byte(id)}, {Key: "ce_source", Value: []byte("/test")},
		{Key: "ce_type", Value: []byte(ceType)}, {Key: "content-type", Value: []byte("application/json")},
	}, more...)}
}

func register(data string) inventory.Record { return event("e", registrationType, data) }

func change(data string) inventory.Record { return event("e", stateChangeType, data) }

// to is a state change without anything else.
func to(state string, ids ...string) inventory.Record {
	var all []string
	for _, id := range ids {
		all = append(all, fmt.Sprintf(`{"cmHandle":%q,"state":{"cmHandleState":%q}}`, id, state))
	}
	return change(`{"cmHandles":[` + strings.Join(all, ",") + `]}`)
}

func heartbeat(id, level string) inventory.Record {
	return event(id, consumer.TypeHeartbeat, fmt.Sprintf(`{"data":{"trustLevel":%q}}`, level))
}

// created is a registration of handles, each given as the members of its entry.
func created(entries ...string) inventory.Record {
	return register(`{"createdCmHandles":[{` + strings.Join(entries, "},{") + `}]}`)
}

// ids is a list of quoted ids.
func ids(format string, from, to int) string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf(`"`+format+`"`, i))
	}
	return strings.Join(all, ",")
}

// wipe makes the inventory empty.
func (w *worker) wipe(t *testing.T) {
	t.Helper()
	w.exec(t, `
		delete from fragment where parent_id is not null;
		delete from ncmp_inventory.reference;
		delete from ncmp_inventory.trust;
		delete from ncmp_inventory.outbox`)
}

func (w *worker) exec(t *testing.T, sql string) {
	t.Helper()
	_, err := w.pool.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// column is what a statement with one column of text gives.
func (w *worker) column(t *testing.T, sql string, args ...any) []string {
	t.Helper()
	rows, err := w.pool.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		require.NoError(t, rows.Scan(&s))
		out = append(out, s)
	}
	require.NoError(t, rows.Err())
	return out
}

// versions are the data nodes with their versions: a row that
// was written again has another one.
func (w *worker) versions(t *testing.T) []string {
	t.Helper()
	return w.column(t, `select xpath || ' ' || xmin::text || ' ' || attributes::text from fragment order by xpath collate "C"`)
}

// stored are a handle's data nodes by the rest of their xpaths, without times;
// empty if there are none.
func (w *worker) stored(t *testing.T, id string) map[string]string {
	t.Helper()
	prefix := "/dmi-registry/cm-handles[@id='" + strings.ReplaceAll(id, "'", "''") + "']"
	out := map[string]string{}
	rows, err := w.pool.Query(t.Context(), `select substr(xpath, length($1) + 1), (attributes - 'last-update-time')::text from fragment where starts_with(xpath, $1)`, prefix)
	require.NoError(t, err)
	for rows.Next() {
		var rest, attributes string
		require.NoError(t, rows.Scan(&rest, &attributes))
		out[rest] = attributes
	}
	require.NoError(t, rows.Err())
	return out
}

// requireSound asserts every invariant of the stored inventory.
func (w *worker) requireSound(t *testing.T) {
	t.Helper()
	r, err := w.store.Verify(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.Findings)
}

// lcmBody is the part of an LCM event of version v2 that tests look at.
type lcmBody struct {
	CmHandleID  string `json:"cmHandleId"`
	AlternateID string `json:"alternateId"`
	OldValues   map[string]any
	NewValues   map[string]any
}

func eventOf(t *testing.T, m message) lcmBody {
	t.Helper()
	require.Equal(t, inventory.LCMEvent, m.kind)
	var body struct{ Event lcmBody }
	require.NoError(t, json.Unmarshal([]byte(m.value), &body))
	return body.Event
}
