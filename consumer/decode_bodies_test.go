package consumer

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/schemas"
)

// testdata/bodies.jsonl holds bodies of POST /ncmpInventory/v1/ch and the status
// with which ONAP NCMP answered them. A body that NCMP takes is a valid event.
func TestRegistrationBodiesOfNCMP(t *testing.T) {
	t.Parallel()
	// Where NCMP is laxer than its own rules: forbidden characters on create.
	lax := map[string]bool{"m04-bad-create-id": true}
	d := NewEventDecoder(DecoderConfig{})
	f, err := os.Open("testdata/bodies.jsonl")
	require.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	n := 0
	for ; lines.Scan(); n++ {
		var c struct {
			Name   string          `json:"name"`
			Body   json.RawMessage `json:"body"`
			Status int             `json:"status"`
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &c))
		body := []byte(c.Body)
		var text string
		if json.Unmarshal(body, &text) == nil {
			body = []byte(text)
		}
		items, dead := d.CheckRegistration(body)
		rejected := dead != nil
		for _, it := range items {
			rejected = rejected || it.Reject != nil
		}
		name, _, _ := strings.Cut(c.Name, "/")
		switch {
		case c.Status == 200:
			require.Equal(t, lax[name], rejected, "%s: %+v", c.Name, dead)
		case c.Status == 400:
			require.True(t, rejected, c.Name)
		default: // entries failed for what is stored, not for their shape
			require.Nil(t, dead, c.Name)
		}
	}
	require.NoError(t, lines.Err())
	require.NotZero(t, n)
}

// Whoever follows the published examples is understood.
func TestPublishedExamplesDecode(t *testing.T) {
	t.Parallel()
	d := NewEventDecoder(DecoderConfig{})
	for _, name := range []string{"registration.v1", "state-change.v1", "device-heartbeat.v1"} {
		value, err := schemas.Example(name)
		require.NoError(t, err)
		r := inventory.Record{Value: value, Headers: []inventory.Header{{Key: "content-type", Value: []byte(mediaStructured)}}}
		d.Decode(&r, false)
		require.Nil(t, r.Dead, "%s: %+v", name, r.Dead)
		require.NotEmpty(t, r.Events[0].Items)
		for _, it := range r.Events[0].Items {
			require.Nil(t, it.Reject, "%s: %+v", name, it.Reject)
		}
	}
}
