package main

import (
	"testing"

	"github.com/stretchr/testify/require"
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
	} {
		got := maskedValue([]byte(c.value))
		require.NotContains(t, got, "hu", c.value)
		require.Equal(t, c.want, got)
	}
}
