package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

func TestMaskedValueHidesWhatIsPrivate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ value, want string }{
		{`{"a":1,"cmHandleProperties":{"user":"hush","deep":{"x":["hush",7,true,null]}},"b":"shown"}`,
			"{\n  \"a\": 1,\n  \"cmHandleProperties\": {\n    \"user\": \"***\",\n    \"deep\": {\n      \"x\": [\n        \"***\",\n        \"***\",\n        \"***\",\n        \"***\"\n      ]\n    }\n  },\n  \"b\": \"shown\"\n}"},
		{`{"CMHANDLEPROPERTIES":"hush"}`, "{\n  \"CMHANDLEPROPERTIES\": \"***\"\n}"},
		{`{"specversion":"1.0","data_base64":"aHVzaA=="}`, "{\n  \"specversion\": \"1.0\",\n  \"data_base64\": \"***\"\n}"},
		{`{"a":1,"a":2} trailing hush`, "{\n  \"a\": 1,\n  \"a\": 2\n}\n… 14 of 27 bytes, from byte 13 on, are no valid JSON and hidden; --private shows them"},
		{`{"cmHandleProperties":{"user":"hu`, "{\n  \"cmHandleProperties\": {\n    \"user\": \"…\"\n  }\n}\n… 4 of 33 bytes, from byte 29 on, are no valid JSON and hidden; --private shows them"},
		{`password=hush`, "\n… 13 of 13 bytes, from byte 0 on, are no valid JSON and hidden; --private shows them"},
		{"", "(no value)"},
		// JSON encoded twice, in data, anywhere, or whole.
		{`{"data":"{\"a\":1,\"cmHandleProperties\":{\"user\":\"hush\"}}"}`,
			"{\n  \"data\": \"{\\\"a\\\":1,\\\"cmHandleProperties\\\":{\\\"user\\\":\\\"***\\\"}}\"\n}"},
		{`{"x":["{\"cmHandleProperties\":\"hush\"}"]}`, "{\n  \"x\": [\n    \"{\\\"cmHandleProperties\\\":\\\"***\\\"}\"\n  ]\n}"},
		{`"{\"cmHandleProperties\":{\"user\":\"hush\"}}"`, `"{\"cmHandleProperties\":{\"user\":\"***\"}}"`},
		{`"\"{\\\"cmHandleProperties\\\":\\\"hush\\\"}\""`, `"\"{\\\"cmHandleProperties\\\":\\\"***\\\"}\""`},
		{`"hush"`, `"***"`},
		{`{"data":"hush"}`, "{\n  \"data\": \"***\"\n}"},
		{`{"data":"{\"cmHandleProperties\":{\"user\":\"hu"}`, "{\n  \"data\": \"***\"\n}"},
		{`{"x":" \ufeff{\"cmHandleProperties\":\"hush\"}"}`, "{\n  \"x\": \"***\"\n}"},
		{`{"x":"cmhandleproperties=hush"}`, "{\n  \"x\": \"***\"\n}"},
		{`{"x":"plain","y":"{\"a\":1}"}`, "{\n  \"x\": \"plain\",\n  \"y\": \"{\\\"a\\\":1}\"\n}"},
	} {
		got := maskedValue([]byte(c.value))
		require.NotContains(t, got, "hu", c.value)
		require.Equal(t, c.want, got)
	}
}

func TestMaskedHeadersHideWhatIsPrivate(t *testing.T) {
	t.Parallel()
	in := []inventory.Header{
		{Key: "cmHandleProperties", Value: []byte("hush")}, {Key: "ce_cmhandleproperties", Value: []byte("hush")},
		{Key: "body", Value: []byte(`{"cmHandleProperties":"hush"}`)}, {Key: "ce_id", Value: []byte("e-1")}, {Key: "null"},
	}
	require.Equal(t, []inventory.Header{
		{Key: "cmHandleProperties", Value: []byte("***")}, {Key: "ce_cmhandleproperties", Value: []byte("***")},
		{Key: "body", Value: []byte(`{"cmHandleProperties":"***"}`)}, {Key: "ce_id", Value: []byte("e-1")}, {Key: "null"},
	}, maskedHeaders(in))
	require.Equal(t, "hush", string(in[0].Value))
}
