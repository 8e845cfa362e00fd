package consumer

import (
	"context"
	"fmt"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/zap"

	"ncmp-inventory/inventory"
)

// BenchmarkFetchDecode is the way from fetched bytes to records with headers.
func BenchmarkFetchDecode(b *testing.B) {
	var set []byte
	values := make([]string, 100)
	for i := range values {
		values[i] = fmt.Sprintf("%0400d", i)
	}
	for i := range 10 {
		set = append(set, batchOf(int64(i*100), values...)...)
	}
	h := newHeaders()
	var spans []span
	b.SetBytes(int64(len(set)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		var err error
		if spans, _, _, err = scan(set, 0, nil, spans[:0]); err != nil {
			b.Fatal(err)
		}
		for i := range spans {
			h.reset()
			r, err := spans[i].open(1 << 20)
			for err == nil && r.left > 0 {
				var rec inventory.Record
				err = r.next(&rec, h)
				n++
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkLanes is everything but decoding and the database: a broker in this
// process, four partitions, 500-byte records with headers.
func BenchmarkLanes(b *testing.B) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "in"))
	if err != nil {
		b.Fatal(err)
	}
	defer broker.Close()
	tr := &kafka.Transport{MetadataTTL: 200 * time.Millisecond}
	defer tr.CloseIdleConnections()
	k := NewCluster(kafka.TCP(broker.ListenAddrs()...), tr)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p, err := k.NewProducer(ctx, "in")
	if err != nil {
		b.Fatal(err)
	}
	const records = 200_000
	value := make([]byte, 400)
	for sent := 0; sent < records; sent += 10_000 {
		events := make([]Outgoing, 10_000)
		for i := range events {
			events[i] = Outgoing{Key: fmt.Appendf(nil, "lab-%d", sent+i), Value: value, Headers: []inventory.Header{
				{Key: "ce_id", Value: []byte("id")}, {Key: "ce_type", Value: []byte("type")}, {Key: "ce_source", Value: []byte("source")},
			}}
		}
		if err := p.Send(ctx, events...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		db := newLedger()
		seen, done := 0, make(chan struct{})
		cfg := DefaultConfig()
		cfg.Topics, cfg.Group, cfg.Owner = []string{"in"}, fmt.Sprint("g", n), "bench"
		c, err := New(cfg, Deps{Cluster: k, Decoder: plain{}, Positions: db, Log: zap.NewNop(),
			Applier: applierFunc(func(_ context.Context, b *inventory.Batch) (inventory.Receipt, error) {
				db.mu.Lock()
				defer db.mu.Unlock()
				if seen += len(b.Records); seen == records {
					close(done)
				}
				return inventory.Receipt{Next: b.Next}, nil
			})})
		if err != nil {
			b.Fatal(err)
		}
		run, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- c.Run(run) }()
		<-done
		stop()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(n*records)/b.Elapsed().Seconds(), "records/s")
}
