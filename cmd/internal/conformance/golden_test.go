package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
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

// The golden cases are requests sent to a real NCMP with its answers, rows and
// LCM records. Each step is sent as an event to the same decoder, planner,
// encoder and PostgreSQL store that the worker runs, and must give the same
// rows (times and row ids aside), the same LCM records (ids and times aside)
// and the same errors, except for the differences that
// docs/differences-from-ncmp.md lists. A listed step has to differ, and what it
// gives instead is pinned beside the golden data.

type goldenCase struct {
	Name  string
	Steps []goldenStep
}

type goldenStep struct {
	Register json.RawMessage
	DataSync *struct {
		CmHandle string
		Enabled  bool
	}
	AfterModuleSync bool
	Status          int
	Response        json.RawMessage
	LCM             []goldenRecord
	Rows            []goldenRow
}

type goldenRecord struct {
	Key     string
	Headers [][2]json.RawMessage
	Value   map[string]any
}

type goldenRow struct {
	XPath, Parent string
	Attributes    map[string]any
}

// result is what one step came to, in a form that compares and prints well.
type result struct {
	Rows     []string            `json:"rows"`
	LCM      map[string][]string `json:"lcm"`
	Failures []string            `json:"failures"`
	Dead     string              `json:"deadLetter,omitempty"`
}

func TestGoldenCases(t *testing.T) {
	listed := listedDifferences(t)
	for _, folder := range []string{"quiet-v1", "sync-v1", "sync-v2"} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			g := newGolden(t, folder)
			seen := map[string]bool{}
			for _, c := range g.cases(t) {
				g.early = nil
				for i, s := range c.Steps {
					name := fmt.Sprintf("%s %s/%d", folder, c.Name, i+1)
					if notComparable[name] {
						continue
					}
					var before []goldenRow
					if i > 0 {
						before = c.Steps[i-1].Rows
					}
					g.reset(t, before)
					g.check(t, name, s, listed[name])
					seen[name] = true
				}
			}
			for name := range listed {
				if strings.HasPrefix(name, folder+" ") {
					require.True(t, seen[name], "%s is listed as a difference but is no step", name)
				}
			}
		})
	}
}

// The harder way: cases without a difference run through, each step on what the
// worker itself stored in the steps before.
func TestGoldenCasesWithoutSeeding(t *testing.T) {
	listed := listedDifferences(t)
	for _, folder := range []string{"quiet-v1", "sync-v1", "sync-v2"} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			g := newGolden(t, folder)
			ran := 0
			for _, c := range g.cases(t) {
				name := func(i int) string { return fmt.Sprintf("%s %s/%d", folder, c.Name, i+1) }
				differs := false
				for i := range c.Steps {
					differs = differs || listed[name(i)] || notComparable[name(i)]
				}
				if differs {
					continue
				}
				ran++
				g.early = nil
				g.reset(t, nil)
				for i, s := range c.Steps {
					g.check(t, name(i), s, false)
				}
			}
			require.Greater(t, ran, 20)
		})
	}
}

// notComparable are steps whose rows were recorded between two writes of NCMP,
// or ahead of their LCM record.
var notComparable = map[string]bool{
	"sync-v1 x007-random/10": true, "sync-v1 x007-random/11": true,
	"sync-v1 x014-random/10": true, "sync-v1 x014-random/11": true,
}

// ahead are steps whose rows were recorded after a transition whose LCM record
// came too late for the step: it stands in the next one.
var ahead = map[string]bool{
	"sync-v1 d01-data-sync/1": true, "sync-v1 r05-again/1": true, "sync-v1 x001-random/1": true,
	"sync-v1 x011-random/6": true, "sync-v1 x029-random/1": true, "sync-v1 x029-random/3": true,
	"sync-v2 u03-alternate-set/1": true, "sync-v2 u09-ignored/1": true,
}

type golden struct {
	folder string
	// early are LCM records that the step before gave ahead of the recording.
	early   map[string][]string
	pool    *pgxpool.Pool
	store   *store.Store
	apply   *inventory.Registrar
	decoder *consumer.EventDecoder
	offset  int64
	epoch   int64
	topic   inventory.Partition
}

func (g *golden) cases(t *testing.T) []goldenCase {
	files, err := filepath.Glob(filepath.Join("testdata", g.folder, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var cs []goldenCase
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		var c goldenCase
		require.NoError(t, json.Unmarshal(b, &c), f)
		cs = append(cs, c)
	}
	return cs
}

// check sends one step and compares.
func (g *golden) check(t *testing.T, name string, s goldenStep, difference bool) {
	t.Helper()
	var got result
	got.LCM = map[string][]string{}
	switch {
	case s.DataSync != nil:
		state := g.stored(t)[s.DataSync.CmHandle].State.State
		g.send(t, &got, stateChangeType, fmt.Appendf(nil, `{"cmHandle":%q,"state":{"cmHandleState":%q,"dataSyncEnabled":%t}}`, s.DataSync.CmHandle, state, s.DataSync.Enabled))
	case s.Register != nil:
		body := []byte(s.Register)
		var text string
		if json.Unmarshal(s.Register, &text) == nil {
			body = []byte(text)
		}
		g.send(t, &got, registrationType, body)
	}
	if strings.HasPrefix(g.folder, "sync") {
		g.followModuleSync(t, &got, s)
	}
	got.Rows = rowTexts(g.rows(t))
	want := result{Rows: rowTexts(s.Rows), LCM: lcmTexts(s.LCM), Failures: failureTexts(t, s)}
	g.carry(name, &got, want)
	slices.Sort(got.Failures)

	pin := filepath.Join("testdata", "ours", strings.NewReplacer(" ", "-", "/", "-").Replace(name)+".json")
	if !difference {
		require.Equal(t, want, got, name)
		return
	}
	require.NotEqual(t, want, got, "%s is listed as a difference but is none", name)
	ours, err := json.MarshalIndent(got, "", " ")
	require.NoError(t, err)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll(filepath.Dir(pin), 0o755))
		require.NoError(t, os.WriteFile(pin, append(ours, '\n'), 0o644))
	}
	pinned, err := os.ReadFile(pin)
	require.NoError(t, err)
	require.Equal(t, string(pinned), string(ours)+"\n", name)
}

// carry moves LCM records that came too late for their step's recording to the
// step after.
func (g *golden) carry(name string, got *result, want result) {
	for key, rs := range g.early {
		got.LCM[key] = append(rs, got.LCM[key]...)
	}
	g.early = nil
	if !ahead[name] {
		return
	}
	g.early = map[string][]string{}
	for key, rs := range got.LCM {
		n := min(len(want.LCM[key]), len(rs))
		if n < len(rs) {
			g.early[key] = rs[n:]
		}
		got.LCM[key] = rs[:n]
		if n == 0 {
			delete(got.LCM, key)
		}
	}
}

const (
	registrationType = "org.onap.ncmp.inventory.registration.v1"
	stateChangeType  = "org.onap.ncmp.inventory.state-change.v1"
)

// send decodes and applies one record and adds what came of it to got.
func (g *golden) send(t *testing.T, got *result, ceType string, body []byte) {
	t.Helper()
	rec := inventory.Record{Offset: g.offset, LeaderEpoch: 0, Value: body, Bytes: len(body), Headers: []inventory.Header{
		{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: fmt.Appendf(nil, "id-%d", g.offset)},
		{Key: "ce_source", Value: []byte("/golden")}, {Key: "ce_type", Value: []byte(ceType)},
		{Key: "content-type", Value: []byte("application/json")},
	}}
	g.decoder.Decode(&rec, false)
	b := &inventory.Batch{Partition: g.topic, First: g.offset, Next: g.offset + 1, OwnerEpoch: g.epoch, LeaderEpoch: 0, Records: []inventory.Record{rec}}
	if rec.Dead != nil {
		got.Dead = rec.Dead.Reason
		b.DeadRun = 1
	}
	_, err := g.apply.Apply(t.Context(), b)
	require.NoError(t, err)
	g.offset++
	g.drain(t, got)
}

// drain takes what waits in the outbox.
func (g *golden) drain(t *testing.T, got *result) {
	t.Helper()
	ctx := t.Context()
	rows, err := g.pool.Query(ctx, `delete from ncmp_inventory.outbox returning id, kind, key, headers, value`)
	require.NoError(t, err)
	type out struct {
		id                  int64
		kind                int16
		key, headers, value []byte
	}
	var all []out
	for rows.Next() {
		var o out
		require.NoError(t, rows.Scan(&o.id, &o.kind, &o.key, &o.headers, &o.value))
		all = append(all, o)
	}
	require.NoError(t, rows.Err())
	sort.Slice(all, func(i, j int) bool { return all[i].id < all[j].id })
	for _, o := range all {
		switch inventory.MessageKind(o.kind) {
		case inventory.LCMEvent:
			headers := parseHeaders(t, o.headers)
			var body map[string]any
			require.NoError(t, json.Unmarshal(o.value, &body))
			got.LCM[string(o.key)] = append(got.LCM[string(o.key)], lcmText(ncmpHeaders(t, headers, body), body))
		case inventory.OutcomeEvent:
			var body struct {
				Failures []struct{ CmHandle, Operation, ErrorCode, ErrorText string }
			}
			require.NoError(t, json.Unmarshal(o.value, &body))
			for _, f := range body.Failures {
				got.Failures = append(got.Failures, fmt.Sprintf("%s %s %s %s", f.Operation, f.CmHandle, f.ErrorCode, f.ErrorText))
			}
		}
	}
}

// followModuleSync sends the state changes with which module sync led each
// handle to the state it has in the step's rows.
func (g *golden) followModuleSync(t *testing.T, got *result, s goldenStep) {
	t.Helper()
	stored := g.stored(t)
	want := handlesOf(s.Rows)
	ids := make([]string, 0, len(want))
	for id := range want {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		w, have := want[id], stored[id]
		if have == nil || w.state == "" {
			continue
		}
		for _, to := range pathTo(have.State, w) {
			change := map[string]any{"cmHandleState": to}
			if to == inventory.Locked && w.lock != nil {
				change["lockReason"] = w.lock
			}
			data := map[string]any{"cmHandle": id, "state": change}
			if to == inventory.Ready && have.State.Lock != nil && w.tag != have.ModuleSetTag {
				data["moduleSetTag"] = w.tag
			}
			body, err := json.Marshal(data)
			require.NoError(t, err)
			g.send(t, got, stateChangeType, body)
		}
	}
}

// pathTo is the shortest way of module sync from a stored state to a wanted one.
func pathTo(have inventory.CompositeState, w wanted) []inventory.State {
	sameLock := w.lock == nil && have.Lock == nil ||
		w.lock != nil && have.Lock != nil && w.lock["details"] == have.Lock.Details.Value
	switch {
	case have.State == w.state && (have.State != inventory.Locked || sameLock):
		return nil
	case have.State == inventory.Locked && w.state == inventory.Advised:
		return []inventory.State{inventory.Advised}
	case have.State == inventory.Locked:
		return []inventory.State{inventory.Advised, w.state}
	case have.State == inventory.Advised:
		return []inventory.State{w.state}
	}
	return nil
}

type wanted struct {
	state inventory.State
	lock  map[string]any
	tag   string
}

func handlesOf(rows []goldenRow) map[string]wanted {
	out := map[string]wanted{}
	for _, r := range rows {
		if r.Parent == "/dmi-registry" {
			id := r.Attributes["id"].(string)
			w := out[id]
			w.tag, _ = r.Attributes["module-set-tag"].(string)
			for _, c := range rows {
				switch c.XPath {
				case r.XPath + "/state":
					s, _ := c.Attributes["cm-handle-state"].(string)
					w.state = inventory.State(s)
				case r.XPath + "/state/lock-reason":
					w.lock = c.Attributes
				}
			}
			out[id] = w
		}
	}
	return out
}

func newGolden(t *testing.T, folder string) *golden {
	db := storetest.Open(t)
	s := openStore(t, db)
	version := lcm.V1
	if strings.HasSuffix(folder, "v2") {
		version = lcm.V2
	}
	enc, err := lcm.NewEncoder(lcm.Config{Version: version, LegacyHeaders: lcm.LegacyJava})
	require.NoError(t, err)
	g := &golden{
		folder: folder, pool: db.Pool(t), store: s,
		decoder: consumer.NewEventDecoder(consumer.DecoderConfig{}),
		topic:   inventory.Partition{TopicID: [16]byte{7}, Topic: "golden"},
		apply: inventory.NewRegistrar(s, enc,
			inventory.RegistrarConfig{PlannerConfig: inventory.PlannerConfig{Events: inventory.EventsNCMP, Outcomes: inventory.OutcomesAll}}),
	}
	c, err := s.Start(t.Context(), g.topic, "cluster", "golden", 0)
	require.NoError(t, err)
	g.epoch = c.OwnerEpoch
	return g
}
