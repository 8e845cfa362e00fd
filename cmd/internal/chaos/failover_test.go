package chaos

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"ncmp-inventory/store/pgembed"
)

// newPair is a world whose PostgreSQL has a standby. Workers know both hosts.
func newPair(t *testing.T) (w *world, standby *pgembed.Server) {
	t.Helper()
	w = newWorld(t, options{seed: 5, duration: time.Minute, rate: 150, session: 2 * time.Second})
	w.cloneTo("standby")
	standby = w.startPostgres("standby", nil)
	w.await("the standby receives", "select exists (select from pg_stat_replication where state = 'streaming')")
	primary, err := url.Parse(w.direct)
	require.NoError(t, err)
	second, err := url.Parse(standby.URL("postgres"))
	require.NoError(t, err)
	primary.Host += "," + second.Host
	q := primary.Query()
	q.Set("target_session_attrs", "read-write")
	primary.RawQuery = q.Encode()
	w.both = primary.String()
	return w, standby
}

// cloneTo copies the running primary into the data directory of a standby.
func (w *world) cloneTo(dir string) {
	w.Helper()
	to := filepath.Join(w.dir, dir)
	owner, err := os.Stat(filepath.Join(w.dir, "postgres"))
	require.NoError(w, err)
	uid, gid := int(owner.Sys().(*syscall.Stat_t).Uid), int(owner.Sys().(*syscall.Stat_t).Gid)
	tool := "pg_basebackup"
	if found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + tool); err == nil && len(found) > 0 {
		tool = found[len(found)-1]
	}
	out, err := exec.CommandContext(w.Context(), tool, "-d", w.direct, "-D", to, "-R", "-X", "stream", "-c", "fast").CombinedOutput()
	require.NoError(w, err, "%s", out)
	require.NoError(w, filepath.WalkDir(to, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	}))
}

// await waits until a query says true.
func (w *world) await(what, query string) {
	w.Helper()
	require.Eventually(w, func() bool {
		conn, err := pgx.Connect(w.Context(), w.direct)
		if err != nil {
			return false
		}
		defer conn.Close(context.Background())
		var yes bool
		return conn.QueryRow(w.Context(), query).Scan(&yes) == nil && yes
	}, patience, 50*time.Millisecond, what)
}

// awaitAnswers waits until that many records more have been answered.
func (w *world) awaitAnswers(n int64) {
	w.Helper()
	from := w.watch.count.Load()
	require.Eventually(w, func() bool { return w.watch.count.Load() >= from+n }, patience, 10*time.Millisecond)
}

// promote lets the standby take over from a primary that is gone.
func (w *world) promote(standby *pgembed.Server) {
	w.Helper()
	w.direct = standby.URL("postgres")
	require.NoError(w, w.sql("select pg_promote()"))
}

// run starts workers, producer and watch; the returned function ends the input.
func (w *world) run(workers int) (enough func()) {
	w.Helper()
	w.proxied = w.both
	for range workers {
		m, err := w.startMemberAt(w.both)
		require.NoError(w, err)
		w.slots = append(w.slots, m)
	}
	ctx, cancel := context.WithCancel(w.Context())
	var g errgroup.Group
	g.Go(func() error { return w.producer.run(ctx) })
	watching, seen := context.WithCancel(context.Background())
	var watcher errgroup.Group
	watcher.Go(func() error { return w.watch.run(watching) })
	w.Cleanup(func() {
		cancel()
		seen()
		require.NoError(w, watcher.Wait())
	})
	return func() {
		cancel()
		require.NoError(w, g.Wait())
	}
}

// A primary dies amid the work, and its synchronous standby is promoted: nothing
// is lost and nothing doubled, and no worker needs help.
func TestFailoverToASynchronousStandby(t *testing.T) {
	t.Parallel()
	w, standby := newPair(t)
	require.NoError(t, w.sql("alter system set synchronous_standby_names = '*'", "select pg_reload_conf()"))
	w.await("the standby is synchronous", "select exists (select from pg_stat_replication where sync_state in ('sync', 'quorum'))")
	enough := w.run(2)
	w.awaitAnswers(400)
	require.NoError(t, w.postgres.Halt(t.Context(), pgembed.Immediate))
	gone := time.Now()
	w.promote(standby)
	promoted := time.Now()
	w.awaitAnswers(1)
	t.Logf("promoted in %s, the next outcome came %s later", promoted.Sub(gone), time.Since(promoted))
	w.awaitAnswers(400)
	enough()
	require.NoError(t, w.settle())
	for _, m := range w.slots {
		require.NoError(t, m.terminate())
	}
	w.slots = nil
	w.alive.Wait()
	require.NoError(t, w.verified())
	r := Check(w.collect())
	require.Empty(t, w.faults)
	require.True(t, r.OK(), "%+v\n%s", r, strings.Join(r.Faults, "\n"))
	require.Greater(t, r.Effects, 800)
}

// An asynchronous standby that lacks commits is promoted: the workers halt and
// say that the database went back; nothing is written.
func TestFailoverToAStandbyThatLacksCommits(t *testing.T) {
	t.Parallel()
	w, standby := newPair(t)
	enough := w.run(2)
	w.awaitAnswers(300)
	require.NoError(t, standby.Halt(t.Context(), pgembed.Fast))
	w.awaitAnswers(300) // the standby lacks what they say
	require.NoError(t, w.postgres.Halt(t.Context(), pgembed.Immediate))
	require.NoError(t, standby.Restart(t.Context(), pgembed.Fast))
	w.promote(standby)
	w.await("a halt is told", "select exists (select from ncmp_inventory.halt where kind = 'rewound')")
	enough()
	out, err := exec.CommandContext(t.Context(), w.program, append([]string{"positions"}, w.flags(w.direct)...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "halted: the stored position is")
	for _, m := range w.slots {
		require.NoError(t, m.terminate())
	}
	w.slots = nil
	w.alive.Wait()
	require.Empty(t, w.faults)
}
