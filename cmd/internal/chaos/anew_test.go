package chaos

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fillers are the records of a partition that its topic takes along when it is
// deleted. They are empty, so that nothing comes of them.
const fillers = 20

// createAnew lets a worker store positions in the input topics, and then deletes
// and creates these: what stands in them now is longer than what did.
func (w *world) createAnew() error {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	count, ends := map[string]int{}, map[source]int64{}
	filler := w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for _, h := range w.homes() {
		if h.From > 0 {
			continue
		}
		count[h.Topic]++
		ends[source{h.Topic, h.Partition}] = fillers
		for range fillers {
			if err := filler.ProduceSync(ctx, &kgo.Record{Topic: h.Topic, Partition: h.Partition}).FirstErr(); err != nil {
				return err
			}
		}
	}
	m, err := w.startMember()
	if err != nil {
		return err
	}
	if err := w.reach(ctx, ends); err != nil {
		return err
	}
	if err := m.kill(); err != nil {
		return err
	}
	admin := w.client()
	for topic, n := range count {
		req := kmsg.NewPtrDeleteTopicsRequest()
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		req.Topics, req.TopicNames, req.TimeoutMillis = append(req.Topics, t), []string{topic}, 10_000
		res, err := req.RequestWith(ctx, admin)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(res.Topics[0].ErrorCode); err != nil {
			return err
		}
		if err := createTopic(ctx, admin, topic, n); err != nil {
			return err
		}
	}
	return nil
}

// Input topics are deleted and created anew while no worker runs, and are longer
// than the stored positions when one comes back: all that they hold is applied,
// under ids of its own.
func TestTopicsCreatedAnewAreReadFromTheirStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, anew(options{seed: *flagSeed, apache: *flagKafka == "apache"}))
	r, _, err := w.live()
	require.NoError(t, err)
	require.Empty(t, w.faults)
	require.True(t, r.OK(), "%s", strings.Join(r.Faults, "\n"))
}

// topicsAnew stands for the fault of that run, which no lane injects.
const topicsAnew = "topics created anew"

// anew is a short run with topics created anew.
func anew(o options) options {
	o.duration, o.rate, o.session, o.workers, o.quiet = 3*time.Second, 200, 1500*time.Millisecond, 1, time.Second
	o.anew, o.only = true, topicsAnew
	return o
}
