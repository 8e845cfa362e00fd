package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
)

// Whatever stands in the topic, each record is one line with the same members.
func TestWatchedRecordsAreOneLineEach(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ value, want string }{
		{"{\"eventId\":\"e\",\n \"event\":{}}", `"eventId":"e","event":{}`},
		{`{"offset":"theirs"}`, `"value":"{\"offset\":\"theirs\"}"`},
		{"{\"cut", `"value":"{\"cut"`},
		{"no JSON", `"value":"no JSON"`},
	} {
		r := &consumer.TailRecord{}
		r.Value, r.Partition, r.Offset = []byte(c.value), 2, 17
		r.Headers = []inventory.Header{{Key: "ce_id", Value: []byte("e")}, {Key: "ce_sequence", Value: []byte("0000000000000000042")}}
		var out bytes.Buffer
		require.NoError(t, writeWatched(&out, r))
		require.Equal(t, `{"ce_id":"e","sequence":"42","partition":2,"offset":17,`+c.want+"}\n", out.String())
	}
}
