package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// collect reads all that the run left behind.
func (w *world) collect() *History {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	h := &History{Rows: map[string]map[string]any{}, Trust: map[string]string{}}
	for _, topic := range []string{topicRegistrations, topicStates, topicBeats} {
		h.Inputs = append(h.Inputs, w.inputs(ctx, topic)...)
	}
	for topic, to := range map[string]*[]Record{topicLCM: &h.LCM, topicInventory: &h.Inventory, topicOutcomes: &h.Outcomes, topicDeadLetters: &h.DeadLetters} {
		for _, r := range w.read(ctx, topic) {
			*to = append(*to, Record{Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Headers: headers(r)})
		}
	}
	conn, err := pgx.Connect(ctx, w.direct)
	require.NoError(w, err)
	defer conn.Close(context.Background())
	rows, err := conn.Query(ctx, `
select f.xpath, f.attributes::text from fragment f join anchor a on a.id = f.anchor_id
where a.name = 'ncmp-dmi-registry' and f.xpath <> '/dmi-registry'`)
	require.NoError(w, err)
	var key, value string
	_, err = pgx.ForEachRow(rows, []any{&key, &value}, func() error {
		attributes := map[string]any{}
		h.Rows[key] = attributes
		return json.Unmarshal([]byte(value), &attributes)
	})
	require.NoError(w, err)
	rows, err = conn.Query(ctx, `select handle, level from ncmp_inventory.trust`)
	require.NoError(w, err)
	_, err = pgx.ForEachRow(rows, []any{&key, &value}, func() error { h.Trust[key] = value; return nil })
	require.NoError(w, err)
	return h
}

// inputs are the records of an input topic as the broker has them, each with
// what it was meant to be.
func (w *world) inputs(ctx context.Context, topic string) []Sent {
	w.Helper()
	id := w.topicID(ctx, topic)
	at := map[int32]int{}
	var all []Sent
	for _, r := range w.read(ctx, topic) {
		list := w.producer.sent[source{topic, r.Partition}]
		n := at[r.Partition]
		require.Less(w, n, len(list), "%s/%d holds more than was sent", topic, r.Partition)
		s := list[n]
		require.True(w, bytes.Equal(s.Key, r.Key) && bytes.Equal(s.Value, r.Value), "%s/%d@%d is not what was sent", topic, r.Partition, r.Offset)
		s.TopicID, s.Offset, s.Epoch = id, r.Offset, r.LeaderEpoch
		all = append(all, s)
		at[r.Partition]++
	}
	for h, list := range w.producer.sent {
		if h.topic == topic {
			require.Equal(w, len(list), at[h.partition], "%s/%d lost records that were acknowledged", topic, h.partition)
		}
	}
	return all
}

func headers(r *kgo.Record) []Header {
	var hs []Header
	for _, h := range r.Headers {
		hs = append(hs, Header{h.Key, h.Value})
	}
	return hs
}

func (w *world) topicID(ctx context.Context, topic string) [16]byte {
	w.Helper()
	return w.metadata(ctx, topic).TopicID
}

func (w *world) metadata(ctx context.Context, topic string) kmsg.MetadataResponseTopic {
	w.Helper()
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	res, err := req.RequestWith(ctx, w.client())
	require.NoError(w, err)
	require.NoError(w, kerr.ErrorForCode(res.Topics[0].ErrorCode), topic)
	return res.Topics[0]
}

// read is a whole topic, partition by partition.
func (w *world) read(ctx context.Context, topic string) []*kgo.Record {
	w.Helper()
	client := w.client()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for _, p := range w.metadata(ctx, topic).Partitions {
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp, part.CurrentLeaderEpoch = p.Partition, -1, -1
		t.Partitions = append(t.Partitions, part)
	}
	req.Topics = append(req.Topics, t)
	res, err := req.RequestWith(ctx, client)
	require.NoError(w, err)
	ends, starts := map[int32]int64{}, map[int32]kgo.Offset{}
	for _, p := range res.Topics[0].Partitions {
		require.NoError(w, kerr.ErrorForCode(p.ErrorCode))
		if p.Offset > 0 {
			ends[p.Partition], starts[p.Partition] = p.Offset, kgo.NewOffset().At(0)
		}
	}
	if len(ends) == 0 {
		return nil
	}
	reader := w.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}), kgo.FetchMaxWait(100_000_000))
	var all []*kgo.Record
	for len(ends) > 0 {
		fetches := reader.PollFetches(ctx)
		require.NoError(w, ctx.Err(), "reading %s", topic)
		fetches.EachRecord(func(r *kgo.Record) {
			all = append(all, r)
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
		})
	}
	slices.SortStableFunc(all, func(a, b *kgo.Record) int { return int(a.Partition) - int(b.Partition) })
	return all
}

func (p source) String() string { return fmt.Sprintf("%s/%d", p.topic, p.partition) }
