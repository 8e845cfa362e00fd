package consumer

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

// The headers of a replay reach the planner; what is none of ours is no replay.
func TestReplayHeadersAreRead(t *testing.T) {
	t.Parallel()
	id := uuid.MustParse("0b1c2d3e-0000-4000-8000-000000000001")
	place := id.String() + "/3/4711"
	h := func(kv ...string) (hs []inventory.Header) {
		for i := 0; i < len(kv); i += 2 {
			hs = append(hs, inventory.Header{Key: kv[i], Value: []byte(kv[i+1])})
		}
		return hs
	}
	origin := inventory.Place{Partition: inventory.Partition{TopicID: id, Index: 3}, Offset: 4711, Time: time.Date(2026, 2, 3, 4, 5, 6, 7e6, time.UTC)}
	timeless := origin
	timeless.Time = time.Time{}
	d := NewEventDecoder(DecoderConfig{})
	for name, c := range map[string]struct {
		headers []inventory.Header
		want    *inventory.Replay
	}{
		"none":       {nil, nil},
		"whole":      {h(HeaderReplayCount, "1", HeaderReplayOf, place, HeaderReplayTime, "2026-02-03T04:05:06.007Z"), &inventory.Replay{Origin: origin}},
		"forced":     {h(HeaderReplayCount, "2", HeaderReplayOf, place, HeaderReplayTime, "2026-02-03T04:05:06.007Z", HeaderReplayForce, "true"), &inventory.Replay{Origin: origin, Forced: true}},
		"no time":    {h(HeaderReplayCount, "1", HeaderReplayOf, place, HeaderReplayTime, ""), &inventory.Replay{Origin: timeless}},
		"no count":   {h(HeaderReplayOf, place), nil},
		"count 0":    {h(HeaderReplayCount, "0", HeaderReplayOf, place), nil},
		"no place":   {h(HeaderReplayCount, "1"), nil},
		"bad id":     {h(HeaderReplayCount, "1", HeaderReplayOf, "x/3/4711"), nil},
		"bad number": {h(HeaderReplayCount, "1", HeaderReplayOf, id.String()+"/3/x"), nil},
	} {
		r := &inventory.Record{
			Headers: append(h("ce_specversion", "1.0", "ce_id", "e", "ce_source", "/s", "ce_type", TypeStateChange), c.headers...),
			Value:   []byte(`{"cmHandle":"a","state":{"cmHandleState":"READY"}}`),
		}
		d.Decode(r, false)
		require.Nil(t, r.Dead, name)
		require.Equal(t, c.want, r.Replay, name)
	}
}
