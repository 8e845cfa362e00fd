package pgembed_test

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/store/pgembed"
)

func TestServerDiesWithItsParent(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orphanVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^ready \d+`, line)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	// A second server gets the directory as soon as the first one is gone.
	require.Eventually(t, func() bool {
		s, err := pgembed.Start(t.Context(), pgembed.Config{DataDir: dir, Port: pgembed.NoTCP})
		if err != nil {
			return false
		}
		require.NoError(t, s.Stop(t.Context()))
		return true
	}, time.Minute, 50*time.Millisecond)
}
