package conformance_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/schemas"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

type codec struct{ model *schemas.Model }

func (c codec) Leaf(path string) (inventory.Leaf, error) { return c.model.Leaf(path) }

func openStore(t *testing.T, db *storetest.DB, change ...func(*store.Config)) *store.Store {
	t.Helper()
	m := schemas.Inventory()
	model, err := schemas.Load(map[string][]byte{m.Name: m.Content})
	require.NoError(t, err)
	return db.New(t, func(c *store.Config) {
		c.Codec = codec{model}
		for _, f := range change {
			if f != nil {
				f(c)
			}
		}
	})
}

// parseHeaders reads a message's headers as the publisher's consumers will.
func parseHeaders(t *testing.T, b []byte) []inventory.Header {
	t.Helper()
	next := func() int64 {
		v, n := binary.Varint(b)
		require.Positive(t, n)
		b = b[n:]
		return v
	}
	take := func() []byte {
		n := next()
		if n < 0 {
			return nil
		}
		require.LessOrEqual(t, n, int64(len(b)))
		v := b[:n]
		b = b[n:]
		return v
	}
	out := make([]inventory.Header, next())
	for i := range out {
		out[i] = inventory.Header{Key: string(take()), Value: take()}
	}
	require.Empty(t, b)
	return out
}
