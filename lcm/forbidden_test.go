package lcm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ncmp-inventory/inventory"
)

// A topic that may not be written to holds its own messages back, and is written to
// when the right is there.
func TestForbiddenTopicStopsItsOwnDrainOnly(t *testing.T) {
	t.Parallel()
	c, o := cluster(t), newMemOutbox()
	forbidden := topics[inventory.DeadLetterRecord]
	fault := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: forbidden, Err: kerr.TopicAuthorizationFailed, Count: -1})
	r := start(t, c, o, nil)
	o.add(messages(inventory.DeadLetterRecord, 3, 3)...)
	o.add(messages(inventory.LCMEvent, 10, 10)...)
	o.await(t, "the other kind", func(o *memOutbox) bool {
		return empty(inventory.LCMEvent)(o) && len(o.rows[inventory.DeadLetterRecord]) == 9
	})
	fault.Remove()
	o.await(t, "the dead letters", empty(inventory.DeadLetterRecord))
	requireOnce(t, read(t, c, forbidden), 3, 3)
	require.Empty(t, r.Status().Problems)
}
