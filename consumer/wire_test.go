package consumer

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/consumer"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"ncmp-inventory/inventory"
)

func TestEveryCompressionIsRead(t *testing.T) {
	t.Parallel()
	codecs := map[string]kgo.CompressionCodec{
		"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	l := newLab(t, map[string]int32{"in": 1})
	want := map[string][]string{}
	was := l.cl
	for _, codec := range codecs {
		l.cl = l.client(kgo.ProducerBatchCompression(codec))
		want["in/0"] = append(want["in/0"], l.send("in", 0, len(want["in/0"]), len(want["in/0"])+500)...)
		l.cl.Close()
	}
	l.cl = was
	l.start("a", func(c *Config, _ *Deps) { c.MaxRecords = 70 })
	l.requireExact(want)
}

func TestOversizeBatchIsADeadLetterAndStopsNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 1})
	was := l.cl
	l.cl = l.client(kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerBatchMaxBytes(8<<20))
	before := l.send("in", 0, 0, 1)
	l.value("in", 0, strings.Repeat("x", 2<<20))
	after := l.send("in", 0, 1, 2)
	l.cl.Close()
	l.cl = was
	dead := make(chan string, 1)
	l.start("a", func(c *Config, d *Deps) {
		c.MaxExpanded = 1 << 20
		d.Applier = applierFunc(func(ctx context.Context, b *inventory.Batch) (inventory.Receipt, error) {
			for i := range b.Records {
				if d := b.Records[i].Dead; d != nil {
					dead <- fmt.Sprint(b.Records[i].Offset, " ", d.Reason)
				}
			}
			return l.db.Apply(ctx, b)
		})
	})
	l.requireExact(map[string][]string{"in/0": {before[0], "", after[0]}})
	require.Equal(t, "1 batch-too-large", <-dead)
}

func TestBrokersWithoutTopicIDsInFetch(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 2}, kfake.MaxVersions(kversion.V2_8_0()))
	want := wants(l, "in", 2, 0, 20, nil)
	w := l.start("a", func(c *Config, _ *Deps) { c.OnGap = Earliest })
	l.requireExact(want)
	require.NoError(t, l.broker.DeleteTopic("in"))
	require.NoError(t, l.broker.CreateTopic("in", 2, nil))
	l.cl.Close()
	l.cl = l.client()
	for k, v := range wants(l, "in", 2, 100, 130, nil) {
		want[k] = append(want[k], v...)
	}
	l.requireExact(want)
	w.until("both", owns(2))
}

func TestLeadersThatMoveAreFollowed(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 3}, kfake.NumBrokers(3))
	want := wants(l, "in", 3, 0, 10, nil)
	w := l.start("a", nil)
	l.requireExact(want)
	for p := range int32(3) {
		require.NoError(t, l.broker.MoveTopicPartition("in", p, (l.broker.LeaderFor("in", p)+1)%3))
	}
	wants(l, "in", 3, 10, 20, want)
	l.requireExact(want)
	w.until("calm", func(s Status) bool { ok, _ := s.Ready(); return ok })
}

func TestFollowAndProducer(t *testing.T) {
	t.Parallel()
	l := newLab(t, map[string]int32{"in": 3})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p, err := l.k.NewProducer(ctx, "in")
	require.NoError(t, err)
	p.BatchBytes = 2000
	start := time.Now()
	var events []Outgoing
	for i := range 300 {
		events = append(events, Outgoing{
			Key: fmt.Appendf(nil, "lab-%d", i%7), Value: fmt.Appendf(nil, "%d", i),
			Headers: []inventory.Header{{Key: "ce_id", Value: fmt.Appendf(nil, "e-%d", i)}},
		})
	}
	require.NoError(t, p.Send(ctx, events[:200]...))
	require.NoError(t, p.Send(ctx, events[200:]...))
	require.NoError(t, p.Send(ctx, Outgoing{Value: []byte("no key")}, Outgoing{Value: []byte("nor here")}))

	from, err := l.k.OffsetsAt(ctx, "in", start.Add(-time.Minute))
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0, 0}, from)
	last := map[string]int{}
	n := 0
	require.NoError(t, l.k.Follow(ctx, "in", from, func(r *TailRecord) (bool, error) {
		n++
		if r.Key == nil {
			return n < 302, nil
		}
		var i int
		_, err := fmt.Sscan(string(r.Value), &i)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("e-%d", i), string(r.Headers[0].Value))
		was, seen := last[string(r.Key)]
		require.True(t, !seen || was < i, "order per key")
		last[string(r.Key)] = i
		want := kafka.Murmur2Balancer{Consistent: true}.Balance(kafka.Message{Key: r.Key}, 0, 1, 2)
		require.EqualValues(t, want, r.Partition)
		return n < 302, nil
	}))
	ends, err := l.k.ListOffsets(ctx, "in")
	require.NoError(t, err)
	total := int64(0)
	for _, o := range ends {
		require.Zero(t, o.Start)
		require.Equal(t, o.End, o.Stable)
		total += o.End
	}
	require.EqualValues(t, 302, total)
	from, err = l.k.OffsetsAt(ctx, "in", time.Now().Add(time.Hour))
	require.NoError(t, err)
	for i := range from {
		require.Equal(t, ends[i].End, from[i])
	}
	broken := fmt.Errorf("enough")
	require.ErrorIs(t, l.k.Follow(ctx, "in", []int64{0, 0, 0}, func(*TailRecord) (bool, error) { return true, broken }), broken)
	require.ErrorIs(t, l.k.Follow(ctx, "nowhere", nil, nil), kafka.UnknownTopicOrPartition)
}

func TestHintSurvivesItsText(t *testing.T) {
	t.Parallel()
	h := hint{identity: inventory.Identity{SystemID: "7300000000000000001", Timeline: 3}, position: 42, topicID: [16]byte{1, 15: 9}}
	got, ok := parseHint(h.String())
	require.True(t, ok)
	require.Equal(t, h, got)
	for _, s := range []string{"", "x", hintPrefix, hintPrefix + " 1 2", hintPrefix + " 1 2 3 zz"} {
		_, ok := parseHint(s)
		require.False(t, ok, s)
	}
}

// batchOf builds a record batch as a producer would.
func batchOf(base int64, values ...string) []byte {
	var body []byte
	for i, v := range values {
		var r []byte
		r = append(r, 0)
		r = binary.AppendVarint(r, int64(i))
		r = binary.AppendVarint(r, int64(i))
		r = binary.AppendVarint(r, 1)
		r = append(r, 'k')
		r = binary.AppendVarint(r, int64(len(v)))
		r = append(r, v...)
		r = binary.AppendVarint(r, 8)
		for h := range 8 {
			name := fmt.Sprintf("ce_header%d", h)
			r = binary.AppendVarint(r, int64(len(name)))
			r = append(r, name...)
			r = binary.AppendVarint(r, 4)
			r = append(r, "text"...)
		}
		body = binary.AppendVarint(body, int64(len(r)))
		body = append(body, r...)
	}
	return sealed(base, int32(len(values)), 0, -1, body)
}

func sealed(base int64, count int32, attrs int16, producer int64, body []byte) []byte {
	b := make([]byte, 61, 61+len(body))
	be := binary.BigEndian
	be.PutUint64(b, uint64(base))
	be.PutUint32(b[8:], uint32(49+len(body)))
	b[16] = 2
	be.PutUint16(b[21:], uint16(attrs))
	be.PutUint32(b[23:], uint32(count-1))
	be.PutUint64(b[27:], 1000)
	be.PutUint64(b[35:], 2000)
	be.PutUint64(b[43:], uint64(producer))
	be.PutUint32(b[57:], uint32(count))
	b = append(b, body...)
	be.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

func TestScanStopsAtDamageAndKeepsWhatStandsBefore(t *testing.T) {
	t.Parallel()
	good := batchOf(10, "a", "b")
	bad := batchOf(12, "c")
	bad[len(bad)-1] ^= 1
	spans, next, _, err := scan(append(bytes.Clone(good), bad...), 11, nil, nil)
	require.ErrorIs(t, err, errCorrupt)
	require.EqualValues(t, 12, next)
	require.Len(t, spans, 1)
	cut, next, _, err := scan(append(bytes.Clone(good), bad[:30]...), 10, nil, nil)
	require.NoError(t, err, "a batch that was cut off comes with the next fetch")
	require.EqualValues(t, 12, next)
	require.Len(t, cut, 1)
}

func FuzzRecordBatch(f *testing.F) {
	f.Add(batchOf(0, "a", "b"), int64(0), int64(0))
	f.Add(append(batchOf(5, "a"), sealed(6, 1, attrControl|attrTxn, 7, []byte{20, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0})...), int64(5), int64(7))
	f.Add(sealed(0, 3, 2, -1, []byte("not snappy")), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, set []byte, from, producer int64) {
		// Whatever stands behind a checksum must be survived too.
		if len(set) >= 61 {
			if n := int(int32(binary.BigEndian.Uint32(set[8:]))); n >= 49 && n <= len(set)-12 {
				binary.BigEndian.PutUint32(set[17:], crc32.Checksum(set[21:12+n], castagnoli))
			}
		}
		spans, next, _, _ := scan(set, from, []abortedTxn{{producer, from}}, nil)
		if next < from {
			t.Fatalf("went back from %d to %d", from, next)
		}
		h := newHeaders()
		for i := range spans {
			r, err := spans[i].open(1 << 20)
			for err == nil && r.left > 0 {
				var rec inventory.Record
				if err = r.next(&rec, h); err == nil && (rec.Offset < spans[i].base || rec.Offset >= spans[i].next) {
					t.Fatalf("offset %d outside of [%d, %d)", rec.Offset, spans[i].base, spans[i].next)
				}
			}
		}
	})
}

func FuzzFetchResponse(f *testing.F) {
	w := wireWriter{}
	w.i32(0)
	w.i16(0)
	w.i32(0)
	w.count(1)
	w.i64(1)
	w.i64(2)
	w.count(1)
	w.i32(0)
	w.i16(0)
	w.i64(10)
	w.i64(10)
	w.i64(0)
	w.count(1)
	w.i64(7)
	w.i64(3)
	w.tags()
	w.i32(-1)
	w.count(3)
	w = append(w, "abc"...)
	w = append(w, 1, 0, 13, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0)
	w.tags()
	w.tags()
	f.Add([]byte(w), int16(13))
	f.Add([]byte(w), int16(12))
	f.Fuzz(func(t *testing.T, b []byte, version int16) {
		r := &wireReader{r: bytes.NewReader(b), n: len(b), flexible: true}
		_, out := readFetch(r, version, map[string][16]byte{}, nil)
		total := 0
		for i := range out {
			total += len(out[i].set)
		}
		if total > len(b) && r.err == nil {
			t.Fatalf("%d bytes out of %d", total, len(b))
		}
		md := &Metadata{Topics: map[string]TopicInfo{}}
		md.read(&wireReader{r: bytes.NewReader(b), n: len(b), flexible: true})
	})
}

func TestFetchResponseIsReadInFull(t *testing.T) {
	t.Parallel()
	r := &wireReader{r: io.LimitReader(nil, 0), n: 4, flexible: true}
	r.i32()
	require.Error(t, r.err)
}

func FuzzGroupMessages(f *testing.F) {
	parts := []consumer.TopicPartition{{Topic: "t", Partitions: []int32{0, 7}}}
	for _, v := range []any{
		consumer.Subscription{Version: 1, Topics: []string{"t"}, UserData: []byte("x"), OwnedPartitions: parts},
		consumer.Assignment{Version: 1, AssignedPartitions: parts},
	} {
		b, err := protocol.Marshal(1, v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0, 1, 0x7f, 0xff, 0xff, 0xff, 0, 1, 't'})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := readSubscription(b)
		if err == nil {
			md := consumer.Subscription{Version: 1, Topics: s.Topics, UserData: s.UserData, OwnedPartitions: topicPartitions(s.OwnedPartitions)}
			again, err := protocol.Marshal(1, md)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := readSubscription(again); err != nil || len(got.Topics) != len(s.Topics) || len(got.OwnedPartitions) != len(s.OwnedPartitions) {
				t.Fatalf("%v became %v: %v", s, got, err)
			}
		}
		_, _ = readAssignment(b)
		counts := map[string]int{"t": 3}
		assign([]kafka.JoinGroupResponseMember{{ID: "a", Metadata: s}, {ID: "b"}}, counts)
	})
}
