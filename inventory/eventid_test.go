package inventory_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
)

// The ids below were computed with another implementation of RFC 9562. They
// are published promises: a change here makes consumers see old events as new.
func TestEventIDIsFixed(t *testing.T) {
	t.Parallel()
	var counting, ones [16]byte
	for i := range counting {
		counting[i], ones[i] = byte(i), 0xff
	}
	for _, c := range []struct {
		id      string
		topic   [16]byte
		part    int32
		epoch   int32
		offset  int64
		element int32
		op      inventory.Op
		index   int32
		step    inventory.Step
	}{
		{"87383e20-3c32-5317-82d8-e2ff920ea83b", counting, 0, 0, 0, 0, inventory.OpCreate, 0, inventory.StepCreate},
		{"5bc49a2d-2c50-53f4-bb06-45a672db732b", counting, 3, 7, 1234567890123, 2, inventory.OpUpdate, 41, inventory.StepUpdate},
		{"156a1726-e4b0-5861-b3aa-6234bca6714d", counting, 3, -1, 9, 0, inventory.OpState, 0, inventory.StepState},
		{"5897a224-0827-5053-980a-9046531bec84", ones, 11, 0, 5, 0, inventory.OpRemove, 0, inventory.StepDeleting},
		{"a80fa01b-f864-58c3-b235-987c8654f9ec", ones, 11, 0, 5, 0, inventory.OpRemove, 0, inventory.StepDelete},
		{"4a7153b5-83ef-5d9c-a965-0cea82839394", counting, 1, 1, 1, 1, inventory.OpUpgrade, 1, inventory.StepUpgrade},
		{"8a16bd96-9645-59b7-857d-1bc1ff6bb4ab", counting, 1, 1, 1, 0, inventory.OpHeartbeat, 0, inventory.StepTrust},
		{"b28aed95-b9f1-5a2a-8934-30865829ef1c", counting, 1, 1, 1, 0, 0, 0, inventory.StepOutcome},
	} {
		p := inventory.Partition{TopicID: c.topic, Topic: "not part of the id", Index: c.part}
		id := inventory.EventID(p, c.epoch, c.offset, c.element, c.op, c.index, c.step)
		require.Equal(t, c.id, id.String())
		require.Equal(t, uuid.Version(5), id.Version())
		require.Equal(t, uuid.RFC4122, id.Variant())
	}
}

func BenchmarkEventID(b *testing.B) {
	p := inventory.Partition{Index: 3}
	b.ReportAllocs()
	for i := range b.N {
		inventory.EventID(p, 1, int64(i), 0, inventory.OpCreate, 0, inventory.StepCreate)
	}
}
