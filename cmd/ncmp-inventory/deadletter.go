package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/segmentio/kafka-go"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

// reasonHeaders are those that a worker puts behind the record's own when it
// sets the record aside, in this order.
var reasonHeaders = [...]string{
	"ncmp_reason", "ncmp_text", "ncmp_field", "ncmp_byte", "ncmp_topic",
	"ncmp_topic_id", "ncmp_partition", "ncmp_offset", "ncmp_timestamp", "ncmp_attempts",
}

// maxReplays is how often a record is sent again. One that failed each time is
// parked: sending it once more would only feed the dead letters.
const maxReplays = 3

// deadLetter is a record that was set aside, as it came, and why.
type deadLetter struct {
	partition int32 // where it stands among the dead letters
	offset    int64
	published time.Time

	reason, text, field, byteOffset, attempts string

	key, value []byte
	headers    []inventory.Header // without those that say why
	source     store.Place        // of the record
	origin     store.Place        // of the first of a chain of replays
	replays    int                // so many replays failed before
}

// errForeign means that a record was not written by a worker.
var errForeign = errors.New("no dead letter of ours")

// readDeadLetter takes a record of the dead-letter topic apart.
func readDeadLetter(r *consumer.TailRecord) (*deadLetter, error) {
	own := len(r.Headers) - len(reasonHeaders)
	if own < 0 {
		return nil, errForeign
	}
	var v [len(reasonHeaders)]string
	for i, name := range reasonHeaders {
		if h := r.Headers[own+i]; h.Key == name {
			v[i] = string(h.Value)
			continue
		}
		return nil, errForeign
	}
	d := &deadLetter{
		partition: r.Partition, offset: r.Offset, published: r.Timestamp,
		reason: v[0], text: v[1], field: v[2], byteOffset: v[3], attempts: v[9],
		key: r.Key, value: r.Value,
	}
	var err error
	if d.source, err = consumer.ReadPlace(v[5], v[6], v[7], v[8]); err != nil {
		return nil, errForeign
	}
	d.source.Topic = v[4]
	d.origin = d.source
	d.readReplay(r.Headers[:own])
	return d, nil
}

// readReplay splits the record's own headers from those of an earlier replay.
// What it cannot read is no replay of ours and stays with the record.
func (d *deadLetter) readReplay(headers []inventory.Header) {
	d.headers = headers
	replay, n := consumer.ReplayOf(headers)
	if replay == nil {
		return
	}
	d.replays, d.origin = n, replay.Origin
	d.headers = slices.DeleteFunc(slices.Clone(headers), func(h inventory.Header) bool {
		switch h.Key {
		case consumer.HeaderReplayCount, consumer.HeaderReplayOf, consumer.HeaderReplayTime, consumer.HeaderReplayForce:
			return true
		}
		return false
	})
}

// id names a dead letter by where it stands, for people to type.
func (d *deadLetter) id() string { return fmt.Sprintf("%d/%d", d.partition, d.offset) }

func (d *deadLetter) parked() bool { return d.replays >= maxReplays }

// place is where the record stood, for people.
func placeText(p store.Place) string {
	topic := p.Topic
	if topic == "" {
		topic = uuid.UUID(p.TopicID).String()
	}
	return fmt.Sprintf("%s/%d/%d", topic, p.Index, p.Offset)
}

// attribute is one of the record's CloudEvents attributes in binary mode.
func (d *deadLetter) attribute(name string) string {
	for _, h := range d.headers {
		if strings.EqualFold(h.Key, "ce_"+name) {
			return string(h.Value)
		}
	}
	return ""
}

// decode reads the record as a worker with these limits would now.
func (d *deadLetter) decode(dec *consumer.EventDecoder, heartbeats []string) *inventory.Record {
	r := &inventory.Record{Key: d.key, Value: d.value, Headers: d.headers, LeaderEpoch: -1, Timestamp: d.source.Time}
	dec.Decode(r, slices.Contains(heartbeats, d.source.Topic))
	return r
}

// deadLetters chooses and reads dead letters.
type deadLetters struct {
	reasons, topics, handles, ids []string
	from, to                      string
	since, until                  time.Time

	decoder    *consumer.EventDecoder
	heartbeats []string
	foreign    int // records that were passed over
}

// prepare reads the filters.
func (f *deadLetters) prepare(c *config.Config, ids []string) (err error) {
	for _, t := range []struct {
		flag, text string
		to         *time.Time
	}{{"from", f.from, &f.since}, {"to", f.to, &f.until}} {
		if t.text == "" {
			continue
		}
		if *t.to, err = parseTime(t.text); err != nil {
			return usage("--%s %s: %w", t.flag, t.text, err)
		}
	}
	known := append(slices.Clone(consumer.DecodeReasons), "batch-too-large", inventory.ReasonRefused, inventory.ReasonOvertaken)
	for _, reason := range f.reasons {
		if !slices.Contains(known, reason) {
			near, _ := config.Nearest(reason, known)
			return usage("--reason %s: no such reason; the nearest known one is %s", reason, near)
		}
	}
	for _, id := range ids {
		if _, _, err := splitID(id); err != nil {
			return err
		}
	}
	f.ids, f.decoder, f.heartbeats = ids, newDecoder(c.Limits), c.Kafka.Topics.Heartbeats
	return nil
}

func splitID(id string) (partition int, offset int64, err error) {
	p, o, ok := strings.Cut(id, "/")
	n, err1 := strconv.ParseUint(p, 10, 31)
	m, err2 := strconv.ParseUint(o, 10, 63)
	if !ok || err1 != nil || err2 != nil {
		return 0, 0, usage("%q names no dead letter: want PARTITION/OFFSET, as dead-letters list shows it", id)
	}
	return int(n), int64(m), nil
}

func (f *deadLetters) wants(d *deadLetter) bool {
	switch {
	case len(f.ids) > 0 && !slices.Contains(f.ids, d.id()),
		len(f.reasons) > 0 && !slices.Contains(f.reasons, d.reason),
		len(f.topics) > 0 && !slices.Contains(f.topics, d.source.Topic),
		!f.since.IsZero() && d.source.Time.Before(f.since),
		!f.until.IsZero() && !d.source.Time.Before(f.until):
		return false
	}
	return len(f.handles) == 0 || f.names(d)
}

// names reports whether the record has to do with one of the handles: by its
// key, its subject, or what it holds.
func (f *deadLetters) names(d *deadLetter) bool {
	has := func(id string) bool { return slices.Contains(f.handles, id) }
	return has(string(d.key)) || has(d.attribute("subject")) ||
		slices.ContainsFunc(d.decode(f.decoder, f.heartbeats).Handles(), has)
}

// read yields the chosen dead letters, in order within each partition, up to
// where the topic ends now.
func (f *deadLetters) read(ctx context.Context, k config.Kafka, fn func(*deadLetter) (more bool, err error)) error {
	topic := k.Topics.DeadLetters
	t, err := newTransport(k, topic)
	if err != nil {
		return err
	}
	defer t.CloseIdleConnections()
	cluster := consumer.NewCluster(kafka.TCP(k.Brokers...), t)
	bounds, err := cluster.ListOffsets(ctx, topic)
	if err != nil {
		return fmt.Errorf("look up %s: %w", topic, err)
	}
	from, to := make([]int64, len(bounds)), make([]int64, len(bounds))
	for i, b := range bounds {
		from[i], to[i] = b.Start, b.Stable
	}
	if !f.since.IsZero() { // none was published before its record was sent
		if from, err = cluster.OffsetsAt(ctx, topic, f.since); err != nil {
			return fmt.Errorf("look up %s: %w", topic, err)
		}
	}
	if len(f.ids) > 0 {
		if err := narrow(f.ids, from, to, bounds); err != nil {
			return err
		}
	}
	return cluster.Read(ctx, topic, from, to, func(r *consumer.TailRecord) (bool, error) {
		d, err := readDeadLetter(r)
		switch {
		case errors.Is(err, errForeign):
			f.foreign++
			return true, nil
		case err != nil:
			return false, err
		case !f.wants(d):
			return true, nil
		}
		return fn(d)
	})
}

// narrow limits what is read to the dead letters that are named.
func narrow(ids []string, from, to []int64, bounds []consumer.Offsets) error {
	least, most := make([]int64, len(to)), make([]int64, len(to))
	for _, id := range ids {
		p, o, err := splitID(id)
		if err != nil {
			return err
		}
		if p >= len(to) || o < bounds[p].Start || o >= bounds[p].Stable {
			return &exitError{exitFailed, fmt.Errorf("there is no dead letter %s", id)}
		}
		if most[p] == 0 || o < least[p] {
			least[p] = o
		}
		most[p] = max(most[p], o+1)
	}
	for p := range to {
		from[p], to[p] = least[p], most[p]
	}
	return nil
}
