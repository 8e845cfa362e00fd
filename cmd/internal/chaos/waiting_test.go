package chaos

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"ncmp-inventory/store/pgembed"
)

// ticksPerSecond is the unit of /proc's CPU times: 1/100 s on all that Go runs on.
const ticksPerSecond = 100

// cpu is the time that the process has computed.
func (m *member) cpu() time.Duration {
	m.w.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.cmd.Process.Pid))
	require.NoError(m.w, err)
	_, after, _ := strings.Cut(string(b), ") ") // the name may hold anything
	fields := strings.Fields(after)
	var ticks int
	for _, f := range fields[11:13] { // user and system
		n, err := strconv.Atoi(f)
		require.NoError(m.w, err)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// mostMemory is the most that the process ever held, in MiB.
func (m *member) mostMemory() int {
	m.w.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid))
	require.NoError(m.w, err)
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(m.w, err)
	return kib / 1024
}

// requireIdle measures what a worker computes while it waits: less than a twentieth
// of one core.
func (m *member) requireIdle(ctx context.Context, what string) {
	m.w.Helper()
	const window = 10 * time.Second
	before := m.cpu()
	pause(ctx, window)
	took := m.cpu() - before
	m.w.Logf("%s: %.1f %% of a core", what, 100*took.Seconds()/window.Seconds())
	require.Less(m.w, took, window/20, what)
}

// requireBack waits until another record is answered. The promise is 5 s; a machine
// that does ten other things gets more.
func (w *world) requireBack(what string) {
	w.Helper()
	began := time.Now()
	w.awaitAnswers(1)
	took := time.Since(began)
	w.Logf("%s: the next outcome came after %s", what, took)
	require.Less(w, took, 20*time.Second, what)
}

// While a server is away a worker neither spins nor grows, whatever comes in
// meanwhile, and it goes on by itself when the server is back.
func TestAWorkerThatWaitsCostsLittle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{seed: 8, duration: 10 * time.Minute, rate: 100, session: 3 * time.Second})
	w.both = w.direct
	enough := w.run(1)
	m := w.slots[0]
	w.awaitAnswers(100)

	require.NoError(t, w.postgres.Halt(t.Context(), pgembed.Immediate))
	w.fill(150)
	m.requireIdle(t.Context(), "PostgreSQL away")
	require.NoError(t, w.postgres.Restart(t.Context(), pgembed.Fast))
	w.requireBack("PostgreSQL back")

	require.NoError(t, w.restartBroker(true, func() { m.requireIdle(t.Context(), "Kafka away") }))
	w.requireBack("Kafka back")

	enough()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, w.producer.flush(ctx))
	most := m.mostMemory()
	t.Logf("at most %d MiB", most)
	require.Less(t, most, 400, "MiB; limits.memory is 64")
	require.NoError(t, m.terminate())
	w.slots = nil
	w.alive.Wait()
	require.Empty(t, w.faults)
}

// fill writes so many MiB of records that nothing comes of, but that have to be
// taken in: they are empty, their headers are not.
func (w *world) fill(mib int) {
	w.Helper()
	c := w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	padding := make([]byte, 512<<10)
	for i := range 2 * mib {
		r := &kgo.Record{Topic: topicStates, Partition: int32(i % initialPartitions), Headers: []kgo.RecordHeader{{Key: "padding", Value: padding}}}
		require.NoError(w, c.ProduceSync(w.Context(), r).FirstErr())
	}
}

// Workers are replaced one after the other, as a deployment does it: no partition
// waits for long.
func TestARollingRestartCostsLittle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{seed: 9, duration: 10 * time.Minute, rate: 100, session: 10 * time.Second})
	w.both = w.direct
	enough := w.run(2)
	w.awaitAnswers(80)
	began := time.Now()
	for slot, old := range w.slots {
		m, err := w.startMemberAt(w.both)
		require.NoError(t, err)
		w.slots[slot] = m
		w.awaitAnswers(80)
		require.NoError(t, old.terminate())
		w.awaitAnswers(80)
	}
	worst, _ := w.watch.worst(began, time.Now(), nil)
	t.Logf("the longest pause of a partition was %s", worst)
	// The promise is 2 s, and a session is 10: a machine that does ten other
	// things gets more than the one, but not the other.
	require.Less(t, worst, 8*time.Second)
	enough()
	require.NoError(t, w.settle())
	for _, m := range w.slots {
		require.NoError(t, m.terminate())
	}
	w.slots = nil
	w.alive.Wait()
	require.Empty(t, w.faults)
	r := Check(w.collect())
	require.True(t, r.OK(), "%s", strings.Join(r.Faults, "\n"))
}
