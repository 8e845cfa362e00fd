//go:build mutants

package chaos

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every planted bug is found by a run of seconds, or by one of a few.
func TestPlantedBugsInTheWorkerAreFound(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	for _, m := range planted {
		t.Run(m.bug, func(t *testing.T) {
			dir := t.TempDir()
			source := filepath.Join(root, m.file)
			text, err := os.ReadFile(source)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(text), m.from), "%s has changed", m.file)
			changed, overlay := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
			require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), m.from, m.to, 1)), 0o600))
			list, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(overlay, list, 0o600))
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
