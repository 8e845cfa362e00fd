//go:build mutants

package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every planted bug is found by a run of seconds, or by one of a few.
func TestPlantedBugsInTheWorkerAreFound(t *testing.T) {
	for _, m := range planted {
		t.Run(m.bug, func(t *testing.T) {
			overlay := overlayOf(t, m.file, m.from, m.to)
			for seed := range uint64(4) {
				if found := infected(t, seed+1, certain[m.bug], overlay); found != "" {
					t.Log(found)
					return
				}
			}
			require.Fail(t, "not found")
		})
	}
}

// infected is what a run of the changed program finds, "" if nothing.
func infected(t *testing.T, seed uint64, only, overlay string) (found string) {
	t.Helper()
	t.Run("run", func(t *testing.T) {
		o := options{
			seed: seed, duration: 15 * time.Second, rate: 200, session: 1500 * time.Millisecond, workers: 2,
			quiet: time.Second, only: only,
		}
		if only == topicsAnew {
			o = anew(o)
		}
		o.patience, o.overlay = time.Minute, overlay
		w := newWorld(t, o)
		r, _, err := w.live()
		switch {
		case r != nil && !r.OK():
			found = r.Faults[0]
		case err != nil:
			found = err.Error()
		case len(w.faults) > 0:
			found = w.faults[0]
		}
	})
	return found[:min(len(found), 300)]
}
