package bench

import (
	"encoding/json"
	"fmt"
	"regexp"
	"sort"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
	"ncmp-inventory/lcm"
	"ncmp-inventory/schemas"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

type codec struct{ model *schemas.Model }

func (c codec) Leaf(path string) (inventory.Leaf, error) { return c.model.Leaf(path) }

// product applies events as a worker does, without Kafka.
type product struct {
	registrar *inventory.Registrar
	decoder   *consumer.EventDecoder
	part      inventory.Partition
	owner     int64
	next      int64
}

func newProduct(t *testing.T, db *storetest.DB) *product {
	t.Helper()
	model, err := schemas.InventoryModel()
	require.NoError(t, err)
	s := db.New(t, func(c *store.Config) { c.Codec = codec{model} })
	encoder, err := lcm.NewEncoder(lcm.Config{})
	require.NoError(t, err)
	part := inventory.Partition{TopicID: [16]byte{1}, Topic: "in"}
	claimed, err := s.Start(t.Context(), part, "bench", "test", 0)
	require.NoError(t, err)
	return &product{
		registrar: inventory.NewRegistrar(s, encoder, inventory.RegistrarConfig{PlannerConfig: inventory.PlannerConfig{MaxLCMBytes: 1 << 20, Facts: true}}),
		decoder:   consumer.NewEventDecoder(consumer.DecoderConfig{RecordBytes: 1 << 24, HandlesPerEvent: 1000}),
		part:      part, owner: claimed.OwnerEpoch,
	}
}

func (p *product) apply(t *testing.T, messages []kafka.Message) {
	t.Helper()
	b := &inventory.Batch{Partition: p.part, First: p.next, OwnerEpoch: p.owner}
	for _, m := range messages {
		r := inventory.Record{Offset: p.next, Timestamp: time.Now(), Key: m.Key, Value: m.Value}
		for _, h := range m.Headers {
			r.Headers = append(r.Headers, inventory.Header(h))
		}
		p.decoder.Decode(&r, false)
		require.Nil(t, r.Dead)
		b.Records = append(b.Records, r)
		p.next++
	}
	b.Next = p.next
	_, err := p.registrar.Apply(t.Context(), b)
	require.NoError(t, err)
}

var (
	timesAndIDs = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+\+0000|"eventId":"[^"]+"`)
	none        = []byte("-")
)

// contents is everything that both sides write, without what must differ: ids,
// times and positions.
func contents(t *testing.T, db *storetest.DB) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, r := range db.Rows(t) {
		all["fragment"] = append(all["fragment"], fmt.Sprintf("%s < %s: %s", r.XPath, r.Parent, timesAndIDs.ReplaceAll([]byte(r.Attributes), none)))
	}
	pool := db.Pool(t)
	defer pool.Close()
	rows, err := pool.Query(t.Context(), `
select 'reference', key || ' ' || owner, 0 from ncmp_inventory.reference
union all
select 'outbox', kind || ' ' || encode(key, 'escape') || ' ' || convert_from(value, 'UTF8'), octet_length(headers) from ncmp_inventory.outbox
union all
select 'history', concat_ws(' ', handle, step, cause_source, before, after), 0 from ncmp_inventory.history`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var table, text string
		var size int
		require.NoError(t, rows.Scan(&table, &text, &size))
		if table == "outbox" {
			// The ids of the events that cause them are a little longer or shorter.
			text += fmt.Sprintf(" headers of %d00 bytes", (size+50)/100)
		}
		all[table] = append(all[table], string(timesAndIDs.ReplaceAll([]byte(text), none)))
	}
	require.NoError(t, rows.Err())
	for _, list := range all {
		sort.Strings(list)
	}
	return all
}

// The ceiling would be a straw man if it wrote more than the worker, and unfair
// if it wrote less.
func TestTheCeilingWritesTheWorkersRows(t *testing.T) {
	t.Parallel()
	workers, bare := storetest.Open(t), storetest.Open(t)
	p := newProduct(t, workers)
	s := &servers{cfg: &Config{History: true}}
	pool, err := s.pool(t.Context(), bare.URL, 2, sessionSettings)
	require.NoError(t, err)
	defer pool.Close()
	c := &ceiling{s: s, pool: pool, conns: 2}
	require.NoError(t, c.begin(t.Context()))
	l, err := load.New(load.Config{Handles: 30, First: 7, PerEvent: 10, Seed: 1})
	require.NoError(t, err)
	for _, ph := range []phase{register, becomeReady, update, remove} {
		events, _ := ph.eventsOf(l, 10)
		p.apply(t, messages("in", events))
		for i, tx := range c.prepare(ph, l, 10) {
			conn, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, c.commit(t.Context(), conn, i%2, tx))
			conn.Release()
		}
		want, got := contents(t, workers), contents(t, bare)
		for _, table := range []string{"fragment", "reference", "outbox", "history"} {
			require.Len(t, got[table], len(want[table]), "%s after phase %d", table, ph)
			for i := range want[table] {
				require.Equal(t, want[table][i], got[table][i], "%s after phase %d", table, ph)
			}
		}
		rows := map[phase]int{register: 1 + 30*rowsAdvised, becomeReady: 1 + 30*rowsReady, update: 1 + 30*rowsReady, remove: 1}[ph]
		require.Len(t, got["fragment"], rows)
		require.Len(t, got["outbox"], 30*ph.events())
		for _, db := range []*storetest.DB{workers, bare} {
			pool := db.Pool(t)
			_, err := pool.Exec(t.Context(), bareTruncate+", ncmp_inventory.history")
			require.NoError(t, err)
			pool.Close()
		}
	}
}

// A device is the same whether it is made as a tree or read from JSON under its
// model, and is of the size that CPS's tests have.
func TestDevicesFitTheirModel(t *testing.T) {
	t.Parallel()
	model, err := schemas.BenchDevice().Load()
	require.NoError(t, err)
	checked, err := model.Nodes(devicesRoot, deviceDocument(3, 2))
	require.NoError(t, err)
	require.Len(t, checked, 2*deviceNodes)
	got := treesOf(devicesRoot, checked)
	want := []store.Node{deviceTree(3, degrees), deviceTree(4, degrees)}
	require.Equal(t, flat(t, "", want), flat(t, "", got))
	require.Equal(t, deviceNodes, countNodes(&want[0]))
	require.Equal(t, deviceXPath(3), checked[0].XPath)
}

// flat lists trees as text.
func flat(t *testing.T, above string, trees []store.Node) []string {
	t.Helper()
	var all []string
	for _, n := range trees {
		leaves := map[string]any{}
		if len(n.Leaves) > 0 {
			require.NoError(t, json.Unmarshal(n.Leaves, &leaves))
		}
		x := above + "/" + n.Step
		all = append(all, fmt.Sprint(x, leaves))
		all = append(all, flat(t, x, n.Children)...)
	}
	return all
}
