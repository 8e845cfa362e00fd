package schemas_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/schemas"
)

func lines(t testing.TB, file string) [][]byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	var out [][]byte
	s := bufio.NewScanner(bytes.NewReader(b))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		out = append(out, bytes.Clone(s.Bytes()))
	}
	require.NoError(t, s.Err())
	require.NotEmpty(t, out)
	return out
}

// The bodies are those that a real NCMP took.
func TestRegistrationsThatNCMPTakesAreValid(t *testing.T) {
	t.Parallel()
	for _, body := range lines(t, "registrations.jsonl") {
		err := schemas.Validate(schemas.Registration, body)
		if bytes.Contains(body, []byte(`{"cmHandle":"lab-b/c"`)) {
			// NCMP stores an id that it can never look up again; it is refused here.
			require.ErrorContains(t, err, "/createdCmHandles/1/cmHandle: does not match")
			continue
		}
		require.NoError(t, err, "%s", body)
	}
}

func TestInvalidDocumentsNameTheMember(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ schema, doc, want string }{
		// These NCMP refuses as well.
		{schemas.Registration, `{"dmiPlugin":"ftp://dmi","createdCmHandles":[{"cmHandle":"a"}]}`, "/dmiPlugin: does not match"},
		{schemas.Registration, `{"dmiDataPlugin":"no url at all","createdCmHandles":[{"cmHandle":"a"}]}`, "/dmiDataPlugin: does not match"},
		{schemas.Registration, `{"createdCmHandles":[{"cmHandle":"a"},{"cmHandle":"b","trustLevel":"MAYBE"}]}`, "/createdCmHandles/1/trustLevel: is none of COMPLETE, NONE, null"},
		{schemas.Registration, `{"createdCmHandles":[{"cmHandle":"a","publicCmHandleProperties":{"o":{"x":1}}}]}`, "/createdCmHandles/0/publicCmHandleProperties/o: is object, want"},
		{schemas.Registration, `{"createdCmHandles":[{"publicCmHandleProperties":{"k":"v"}}]}`, "/createdCmHandles/0: lacks cmHandle"},
		{schemas.Registration, `{"createdCmHandles":[{"cmHandle":null}]}`, "/createdCmHandles/0/cmHandle: is null, want"},
		{schemas.Registration, `{"createdCmHandles":[{"cmHandle":"a","publicCmHandleProperties":["x"]}]}`, "/createdCmHandles/0/publicCmHandleProperties: is array, want null or object"},
		{schemas.Registration, `[1,2]`, "no valid registration.v1: is array, want object"},
		{schemas.Registration, `{"createdCmHandles":[`, "no valid registration.v1: is no valid JSON"},
		// These are this project's own.
		{schemas.Registration, `{"dmiPlugin":"","dmiPlugin":""}`, "is no valid JSON"},
		{schemas.Registration, `{"dmiPlugin":"\ud800"}`, "is no valid JSON"},
		{schemas.Registration, `{"removedCmHandles":"a"}`, "/removedCmHandles: is string, want null or array"},
		{schemas.Registration, `{"removedCmHandles":["a",""]}`, "/removedCmHandles/1: has 0 characters, want at least 1"},
		{schemas.Registration, `{"upgradedCmHandles":["a"]}`, "/upgradedCmHandles: is array, want null or object"},
		{schemas.Registration, `{"updatedCmHandles":[null]}`, "/updatedCmHandles/0: is null, want object"},
		{schemas.Registration, `{"createdCmHandles":[{"cmHandle":"` + strings.Repeat("x", 257) + `"}]}`, "/createdCmHandles/0/cmHandle: has 257 characters, want at most 256"},
		{schemas.StateChange, `{}`, "lacks cmHandle, state"},
		{schemas.StateChange, `{"cmHandle":"a","state":{"cmHandleState":"READY"},"cmHandles":[]}`, "/cmHandle: is not allowed here; /state: is not allowed here"},
		{schemas.StateChange, `{"cmHandles":[{"cmHandle":"a","state":{"cmHandleState":"DELETING"}}]}`, "/cmHandles/0/state/cmHandleState: is none of ADVISED, READY, LOCKED, DELETED"},
		{schemas.StateChange, `{"cmHandle":"a","state":{"cmHandleState":"LOCKED","dataSyncEnabled":true}}`, "/state/dataSyncEnabled: is boolean, want null"},
		{schemas.StateChange, `{"cmHandle":"a","state":{}}`, "/state: lacks cmHandleState"},
		{schemas.StateChange, `{"cmHandle":"a","state":{"cmHandleState":"READY","moduleSetTag":[]}}`, "/state/moduleSetTag: is array"},
		{schemas.LCMEventV2, `{}`, "no valid lcm-event.v2: lacks event, eventCorrelationId"},
		{schemas.DeviceHeartbeat, `{"data":{"trustLevel":"SOME"}}`, "/data/trustLevel: is none of COMPLETE, NONE"},
		{schemas.InventoryEvent, `{"data":{"attributeValueChange":[]}}`, "/data/attributeValueChange: has 0 elements, want at least 1"},
		{schemas.Outcome, `{"source":{"topic":"t","partition":0,"offset":1,"id":"i"},"failures":[{"cmHandle":"a"}],"succeeded":-1}`, "/failures/0: lacks errorCode, errorText"},
		{schemas.CloudEvent, `{"specversion":"0.3","id":"i","source":"s","type":"t"}`, "/specversion: is not 1.0"},
		{schemas.CloudEvent, `{"specversion":"1.0","id":"i","source":"s"}`, "no valid cloudevent: lacks type"},
		{schemas.CloudEvent, `{"specversion":"1.0","id":"i","source":"s","type":"org.onap.ncmp.inventory.registration.v1","data":{"removedCmHandles":7}}`, "/data/removedCmHandles: is number, want null or array"},
	} {
		err := schemas.Validate(c.schema, []byte(c.doc))
		require.ErrorContains(t, err, c.want, "%s", c.doc)
		var invalid *schemas.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, c.schema, invalid.Schema)
		require.NotEmpty(t, invalid.Members)
	}
	require.ErrorContains(t, schemas.Validate("nothing", nil), `no JSON Schema named "nothing"`)
}

func TestInvalidDocumentsKeepPrivateProperties(t *testing.T) {
	t.Parallel()
	err := schemas.Validate(schemas.Registration, []byte(
		`{"createdCmHandles":[{"cmHandle":"a b","cmHandleProperties":{"hush":["hush-hush"]},"trustLevel":"hush-level"}]}`))
	require.ErrorContains(t, err, "/createdCmHandles/0/cmHandleProperties[…]: is array")
	require.NotContains(t, err.Error(), "hush")
}

// The bodies are those that a real NCMP published.
func TestLCMEventsOfNCMPAreValid(t *testing.T) {
	t.Parallel()
	for file, c := range map[string]struct{ schema, other string }{
		"lcm-v1.jsonl": {schemas.LCMEventV1, schemas.LCMEventV2},
		"lcm-v2.jsonl": {schemas.LCMEventV2, schemas.LCMEventV1},
	} {
		kinds := map[string]int{}
		for _, body := range lines(t, file) {
			require.NoError(t, schemas.Validate(c.schema, body), "%s", body)
			require.Error(t, schemas.Validate(c.other, body), "%s", body)
			kinds[kindOf(t, body)]++
			for name, mutant := range mutants(t, body) {
				require.Error(t, schemas.Validate(c.schema, mutant), "%s: %s", name, mutant)
			}
		}
		require.Len(t, kinds, 3, "create, update and delete")
	}
}

func kindOf(t *testing.T, body []byte) string {
	t.Helper()
	var e struct{ EventType string }
	require.NoError(t, json.Unmarshal(body, &e))
	return e.EventType[strings.LastIndexByte(e.EventType, '.')+1:]
}

// mutants are events that no consumer should see.
func mutants(t *testing.T, body []byte) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	mutate := func(name string, change func(root, event map[string]any)) {
		var root map[string]any
		require.NoError(t, json.Unmarshal(body, &root))
		change(root, root["event"].(map[string]any))
		b, err := json.Marshal(root)
		require.NoError(t, err)
		out[name] = b
	}
	var root map[string]any
	require.NoError(t, json.Unmarshal(body, &root))
	event := root["event"].(map[string]any)
	for m := range root {
		mutate("without "+m, func(root, _ map[string]any) { delete(root, m) })
		mutate("null "+m, func(root, _ map[string]any) { root[m] = nil })
	}
	// An update without any values is one that changed nothing visible.
	delete(event, "oldValues")
	delete(event, "newValues")
	for m := range event {
		mutate("without event."+m, func(_, e map[string]any) { delete(e, m) })
	}
	mutate("more", func(root, _ map[string]any) { root["more"] = 1 })
	mutate("more in event", func(_, e map[string]any) { e["cmHandleProperties"] = map[string]any{} })
	mutate("other type", func(root, _ map[string]any) { root["eventType"] = "org.onap.ncmp.cmhandle-lcm-event.other" })
	mutate("other time", func(root, _ map[string]any) { root["eventTime"] = "2026-02-03T04:05:06Z" })
	mutate("other id", func(root, _ map[string]any) { root["eventId"] = "7" })
	mutate("empty handle", func(_, e map[string]any) { e["cmHandleId"] = "" })
	switch kindOf(t, body) {
	case "create":
		mutate("old values", func(_, e map[string]any) { e["oldValues"] = e["newValues"] })
		mutate("no values", func(_, e map[string]any) { delete(e, "newValues") })
		mutate("born ready", func(_, e map[string]any) { e["newValues"].(map[string]any)["cmHandleState"] = "READY" })
		mutate("no properties", func(_, e map[string]any) { delete(e["newValues"].(map[string]any), "cmHandleProperties") })
	case "update":
		mutate("no old values", func(_, e map[string]any) { delete(e, "oldValues") })
		mutate("no new values", func(_, e map[string]any) { delete(e, "newValues") })
		mutate("unknown state", func(_, e map[string]any) { e["newValues"].(map[string]any)["cmHandleState"] = "GONE" })
		mutate("private", func(_, e map[string]any) { e["newValues"].(map[string]any)["additionalProperties"] = "x" })
	case "delete":
		mutate("values", func(_, e map[string]any) { e["newValues"] = map[string]any{"cmHandleState": "DELETING"} })
	}
	return out
}

func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	for _, name := range schemas.Names() {
		text, err := schemas.Schema(name)
		require.NoError(t, err)
		require.True(t, json.Valid(text), name)
		if name == schemas.CloudEvent {
			continue
		}
		ex, err := schemas.Example(name)
		require.NoError(t, err, name)
		require.NoError(t, schemas.Validate(schemas.CloudEvent, ex), name)
		var event struct{ Data json.RawMessage }
		require.NoError(t, json.Unmarshal(ex, &event))
		require.NoError(t, schemas.Validate(name, event.Data), name)
		// The envelope finds the data's schema by its type.
		var broken map[string]any
		require.NoError(t, json.Unmarshal(ex, &broken))
		broken["data"] = "text"
		b, err := json.Marshal(broken)
		require.NoError(t, err)
		require.ErrorContains(t, schemas.Validate(schemas.CloudEvent, b), "/data: is string, want object", name)
	}
	_, err := schemas.Example("nothing")
	require.Error(t, err)
	_, err = schemas.Schema("../events")
	require.Error(t, err)
}

// Everything that stands in json/ and examples/ has a name, and no schema
// refers to a file or host.
func TestSchemaFilesAreKnown(t *testing.T) {
	t.Parallel()
	files := map[string]bool{}
	for _, dir := range []string{"json", "examples"} {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			name, _, _ := strings.Cut(e.Name(), ".schema.json")
			files[strings.TrimSuffix(name, ".json")] = true
		}
	}
	require.Equal(t, slices.Sorted(slices.Values(schemas.Names())), slices.Sorted(maps.Keys(files)))
}

func BenchmarkValidateRegistration(b *testing.B) {
	ex, err := schemas.Example(schemas.Registration)
	require.NoError(b, err)
	for b.Loop() {
		if err := schemas.Validate(schemas.CloudEvent, ex); err != nil {
			b.Fatal(err)
		}
	}
}
