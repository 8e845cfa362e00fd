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

// overlayOf is a build overlay that changes one place in a source file.
func overlayOf(t *testing.T, file, from, to string) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	source, dir := filepath.Join(root, file), t.TempDir()
	text, err := os.ReadFile(source)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), from), "%s has changed", file)
	changed, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), from, to, 1)), 0o600))
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, list, 0o600))
	return overlay
}

// The clocks of the workers jump by up to a day, back and forth, between any two
// batches: times are wrong then, and nothing else is.
func TestAClockThatJumpsHurtsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{
		seed: *flagSeed, duration: 6 * time.Second, rate: 150, session: 1500 * time.Millisecond, workers: 2, quiet: time.Second, only: "worker killed",
		overlay: overlayOf(t, "inventory/registrar.go", "cfg.Now = time.Now\n",
			"cfg.Now = func() time.Time { return time.Now().AddDate(0, 0, int(time.Now().UnixNano()/1000%3)-1) }\n"),
	})
	r, _, err := w.live()
	require.NoError(t, err)
	require.Empty(t, w.faults)
	require.True(t, r.OK(), "%s", strings.Join(r.Faults, "\n"))
}
