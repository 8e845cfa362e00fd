package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// member is a worker process.
type member struct {
	w     *world
	name  string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has; err is set before
	err   error
	// meant says that somebody ends it: any other end is a crash.
	meant atomic.Bool
}

// build makes the program once for the run.
func (w *world) build() {
	w.Helper()
	w.program = filepath.Join(w.dir, "ncmp-inventory")
	out, err := exec.CommandContext(w.Context(), "go", "build", "-overlay", w.overlay, "-o", w.program, "ncmp-inventory/cmd/ncmp-inventory").CombinedOutput()
	require.NoError(w, err, "%s", out)
}

// flags are what workers and tools are configured with.
func (w *world) flags(databaseURL string) []string {
	policy := "halt"
	if w.anew {
		policy = "earliest"
	}
	return []string{
		"--kafka.on-gap", policy,
		"--kafka.brokers", w.bootstrap, "--database.url", databaseURL,
		"--kafka.session-timeout", w.session.String(), "--kafka.heartbeat-interval", (w.session / 10).String(),
		"--kafka.topics.registrations", topicRegistrations, "--kafka.topics.state-changes", topicStates,
		"--kafka.topics.heartbeats", topicBeats, "--outcomes", "all", "--lcm.version", "v2",
	}
}

// startMember starts a worker. Every second one reaches PostgreSQL by the proxy.
func (w *world) startMember() (*member, error) {
	if w.people%2 == 1 {
		return w.startMemberAt(w.proxied)
	}
	return w.startMemberAt(w.direct)
}

func (w *world) startMemberAt(url string) (*member, error) {
	w.people++
	m := &member{w: w, name: fmt.Sprintf("worker-%d", w.people), ended: make(chan struct{})}
	log, err := os.Create(filepath.Join(w.dir, m.name+".log"))
	if err != nil {
		return nil, err
	}
	m.cmd = exec.Command(w.program, slices.Concat([]string{"worker", "--http.address", "off", "--log.format", "json", "--drain-timeout", drainTimeout.String()}, w.flags(url))...)
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if err := errors.Join(m.cmd.Start(), log.Close()); err != nil {
		return nil, err
	}
	w.alive.Add(1)
	go func() {
		defer w.alive.Done()
		m.err = m.cmd.Wait()
		if !m.meant.Load() {
			w.fault("%s ended by itself: %v, after %s", m.name, m.err, lastWords(log.Name()))
		}
		close(m.ended)
	}()
	return m, nil
}

// lastWords are the end of a log.
func lastWords(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-1500):])
}

// signal sends a signal. A process that has ended meanwhile needs none.
func (m *member) signal(s os.Signal) error {
	if err := m.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}

// kill ends the process as a crash does.
func (m *member) kill() error {
	m.meant.Store(true)
	err := m.signal(os.Kill)
	<-m.ended
	return err
}

// stop freezes the process, goOn lets it go on.
func (m *member) stop() error { return m.signal(syscall.SIGSTOP) }
func (m *member) goOn() error { return m.signal(syscall.SIGCONT) }

func (m *member) freeze(ctx context.Context, d time.Duration) error {
	if err := m.stop(); err != nil {
		return err
	}
	pause(ctx, d)
	return m.goOn()
}

// terminateTwice asks for a clean end and does not wait for it.
func (m *member) terminateTwice() error {
	m.meant.Store(true)
	if err := errors.Join(m.signal(syscall.SIGTERM), m.signal(syscall.SIGTERM)); err != nil {
		return err
	}
	select {
	case <-m.ended:
		return nil
	case <-time.After(drainTimeout / 2):
		// Two signals that arrive as one are one.
		return m.signal(syscall.SIGTERM)
	}
}

const drainTimeout = 15 * time.Second

// terminate asks for a clean end, which has to come in time and, unless servers
// were away meanwhile, with exit code 0.
func (m *member) terminate() error {
	m.meant.Store(true)
	outages := m.w.outages.Load()
	if err := m.signal(syscall.SIGTERM); err != nil {
		return err
	}
	asked := time.Now()
	select {
	case <-m.ended:
	case <-time.After(patience):
		m.w.fault("%s did not end within %s of SIGTERM", m.name, patience)
		return m.kill()
	}
	took := time.Since(asked)
	if undisturbed := outages == m.w.outages.Load() && outages%2 == 0; m.err != nil && undisturbed {
		m.w.fault("%s ended with %v, %s after SIGTERM", m.name, m.err, took)
	}
	m.w.stopped(took)
	return nil
}
