package bench

import (
	"testing"

	"ncmp-inventory/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }
