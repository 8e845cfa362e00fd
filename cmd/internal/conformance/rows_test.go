package conformance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

// reset makes the store hold exactly the given rows, references included.
func (g *golden) reset(t *testing.T, rows []goldenRow) {
	t.Helper()
	ctx := t.Context()
	_, err := g.pool.Exec(ctx, `
		delete from fragment where parent_id is not null;
		delete from ncmp_inventory.reference;
		delete from ncmp_inventory.trust;
		delete from ncmp_inventory.outbox`)
	require.NoError(t, err)
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b goldenRow) int { return len(a.XPath) - len(b.XPath) })
	for _, r := range rows {
		attributes, err := json.Marshal(r.Attributes)
		require.NoError(t, err)
		tag, err := g.pool.Exec(ctx, `
			insert into fragment (id, xpath, attributes, anchor_id, parent_id)
			select nextval('fragment_id_seq'), $1, $2::jsonb, anchor_id, id from fragment where xpath = $3`,
			r.XPath, string(attributes), r.Parent)
		require.NoError(t, err)
		require.EqualValues(t, 1, tag.RowsAffected(), "%s has no parent", r.XPath)
	}
	_, err = g.pool.Exec(ctx, `
		insert into ncmp_inventory.reference (key, owner)
		select key, (array_agg(id order by rank, row))[1] from (
			select attributes->>'id' as key, attributes->>'id' as id, 0 as rank, id as row from fragment where attributes ? 'id'
			union all
			select attributes->>'alternate-id', attributes->>'id', 1, id from fragment where attributes->>'alternate-id' <> '') k
		group by key`)
	require.NoError(t, err)
}

func (g *golden) rows(t *testing.T) []goldenRow {
	t.Helper()
	rows, err := g.pool.Query(t.Context(), `
		select f.xpath, p.xpath, f.attributes from fragment f join fragment p on p.id = f.parent_id`)
	require.NoError(t, err)
	var out []goldenRow
	for rows.Next() {
		var r goldenRow
		require.NoError(t, rows.Scan(&r.XPath, &r.Parent, &r.Attributes))
		out = append(out, r)
	}
	require.NoError(t, rows.Err())
	return out
}

// stored reads the handles' states back from their rows.
func (g *golden) stored(t *testing.T) map[string]*inventory.Handle {
	t.Helper()
	out := map[string]*inventory.Handle{}
	for id, w := range handlesOf(g.rows(t)) {
		h := &inventory.Handle{ID: id, ModuleSetTag: w.tag}
		h.State.State = w.state
		if w.lock != nil {
			details, _ := w.lock["details"].(string)
			h.State.Lock = &inventory.LockReason{Details: inventory.SetText(details)}
		}
		out[id] = h
	}
	return out
}

func rowTexts(rows []goldenRow) []string {
	out := make([]string, 0, len(rows))
	for _, r := range rows {
		a := map[string]any{}
		for k, v := range r.Attributes {
			if k == "last-update-time" || k == "last-sync-time" {
				v = "<time>"
			}
			a[k] = v
		}
		b, err := json.Marshal(a)
		if err != nil {
			panic(err)
		}
		out = append(out, r.XPath+" < "+r.Parent+" "+string(b))
	}
	slices.Sort(out)
	return out
}

func lcmTexts(rs []goldenRecord) map[string][]string {
	out := map[string][]string{}
	for _, r := range rs {
		var hs []string
		for _, h := range r.Headers {
			hs = append(hs, string(h[0])+"="+compact(h[1]))
		}
		out[r.Key] = append(out[r.Key], lcmText(hs, r.Value))
	}
	return out
}

func compact(raw json.RawMessage) string {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		panic(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func lcmText(headers []string, body map[string]any) string {
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return strings.Join(headers, " ") + " " + string(b)
}

// ncmpHeaders are the headers that NCMP sends as well, ids and times masked as
// they are in the golden data. It masks the body too.
func ncmpHeaders(t *testing.T, headers []inventory.Header, body map[string]any) []string {
	t.Helper()
	var out []string
	for _, h := range headers {
		if strings.HasPrefix(h.Key, "ce_") || strings.EqualFold(h.Key, "content-type") {
			continue
		}
		kind, text := "utf8", string(h.Value)
		if strings.HasPrefix(text, "\xac\xed\x00\x05t") {
			kind, text = "java-string", text[7:]
		}
		switch h.Key {
		case "eventId":
			require.Equal(t, body["eventId"], text)
			text = "<uuid>"
		case "eventTime":
			require.Equal(t, body["eventTime"], text)
			text = "<time>"
		}
		v, err := json.Marshal(map[string]string{kind: text})
		require.NoError(t, err)
		out = append(out, fmt.Sprintf("%q=%s", h.Key, v))
	}
	body["eventId"], body["eventTime"] = "<uuid>", "<time>"
	return out
}

// failureTexts are the errors of NCMP's answer, by list.
func failureTexts(t *testing.T, s goldenStep) []string {
	t.Helper()
	if s.DataSync != nil && s.Status == 500 {
		var r struct{ Details string }
		require.NoError(t, json.Unmarshal(s.Response, &r))
		return []string{fmt.Sprintf("state %s 108 %s", s.DataSync.CmHandle, r.Details)}
	}
	if s.Status != 500 {
		if s.Status >= 400 {
			return []string{fmt.Sprintf("HTTP %d", s.Status)}
		}
		return nil
	}
	var r map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(s.Response, &r))
	var out []string
	for list, op := range map[string]string{"failedCreatedCmHandles": "create", "failedUpdatedCmHandles": "update", "failedRemovedCmHandles": "remove", "failedUpgradeCmHandles": "upgrade"} {
		var fs []struct{ CmHandle, ErrorCode, ErrorText string }
		if raw, ok := r[list]; ok {
			require.NoError(t, json.Unmarshal(raw, &fs))
		}
		for _, f := range fs {
			out = append(out, fmt.Sprintf("%s %s %s %s", op, f.CmHandle, f.ErrorCode, f.ErrorText))
		}
	}
	if len(out) == 0 {
		out = append(out, "HTTP 500")
	}
	slices.Sort(out)
	return slices.Compact(out)
}

var step = regexp.MustCompile(`(quiet-v1|sync-v1|sync-v2) ((?:[a-z]\d+[\w-]*/\d+[ ,]*)+)`)

// listedDifferences reads the steps that docs/differences-from-ncmp.md lists,
// in the form "quiet-v1 c03-two-kinds/1 c04-exists/2".
func listedDifferences(t *testing.T) map[string]bool {
	b, err := os.ReadFile("../../../docs/differences-from-ncmp.md")
	require.NoError(t, err)
	out := map[string]bool{}
	for _, m := range step.FindAllStringSubmatch(string(b), -1) {
		for _, s := range strings.Fields(strings.ReplaceAll(m[2], ",", " ")) {
			out[m[1]+" "+s] = true
		}
	}
	require.NotEmpty(t, out)
	return out
}
