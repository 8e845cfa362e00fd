package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// testHomes are a small system: three topics, two partitions that share handles
// with a third.
var testHomes = []Home{
	{Topic: "registrations", Partition: 0, Shares: true}, {Topic: "registrations", Partition: 1},
	{Topic: "states", Partition: 0, Shares: true}, {Topic: "states", Partition: 1, Shares: true},
	{Topic: "beats", Partition: 0, Heartbeats: true},
}

// ideal is a worker as it should be, without any of the worker's code: it takes
// records one by one, in any order of the partitions, and leaves a history. What
// it is told to do wrong makes it a mutant.
type ideal struct {
	h       *History
	m       *model
	seq     int64
	written int
	// id, if set, makes event ids otherwise than it should.
	id func(s *Sent, element int, f effect, n int) string
	// number, if set, makes sequences otherwise.
	number func(s *Sent) int64
}

// sent are the first n records of a stream, partition by partition.
func sent(seed uint64, n int) []Sent {
	stream := NewStream(seed, testHomes)
	ends := map[string]int64{}
	var all []Sent
	for range n {
		in := stream.Next()
		key := fmt.Sprintf("%s/%d", in.Topic, in.Partition)
		all = append(all, Sent{Input: in, TopicID: uuid.NewSHA1(uuid.Nil, []byte(in.Topic)), Offset: ends[key]})
		ends[key]++
	}
	return all
}

// partitions are the records by partition, in order.
func partitions(all []Sent) [][]*Sent {
	var keys []string
	by := map[string][]*Sent{}
	for i := range all {
		key := fmt.Sprintf("%s/%d", all[i].Topic, all[i].Partition)
		if by[key] == nil {
			keys = append(keys, key)
		}
		by[key] = append(by[key], &all[i])
	}
	slices.Sort(keys)
	var out [][]*Sent
	for _, key := range keys {
		out = append(out, by[key])
	}
	return out
}

func newIdeal() *ideal { return &ideal{h: &History{}, m: newModel()} }

// run applies all records; the partitions take turns at random. around, if set,
// does each record in its own way.
func (w *ideal) run(seed uint64, all []Sent, around func(s *Sent)) *History {
	if around == nil {
		around = w.record
	}
	r := rand.New(rand.NewPCG(seed, 99))
	queues := partitions(all)
	for len(queues) > 0 {
		i := r.IntN(len(queues))
		around(queues[i][0])
		if queues[i] = queues[i][1:]; len(queues[i]) == 0 {
			queues = slices.Delete(queues, i, i+1)
		}
	}
	for _, p := range partitions(all) {
		for _, s := range p {
			w.h.Inputs = append(w.h.Inputs, *s)
		}
	}
	w.store()
	return w.h
}

// store leaves the rows as they are now.
func (w *ideal) store() {
	w.h.Rows, w.h.Trust = map[string]map[string]any{}, w.m.trust
	for xpath, attributes := range w.m.rows() {
		if strings.HasSuffix(xpath, "/state") {
			attributes["last-update-time"] = "now"
		}
		w.h.Rows[xpath] = attributes
	}
}

func (w *ideal) record(s *Sent) {
	if s.Garbage != nil {
		w.deadLetter(s, 1)
		if s.Garbage.EventID != "" {
			w.outcome(s, 0, &Event{ID: s.Garbage.EventID}, result{failures: []failure{{"", "", codeUnknown}}}, s.Garbage.Reason)
		}
		return
	}
	for n := range s.Events {
		e := &s.Events[n]
		res := w.m.apply(e, s.Key)
		w.publish(s, n, e, res)
		w.answer(s, n, e, res)
	}
}

// answer publishes the outcome of an event that wants one.
func (w *ideal) answer(s *Sent, n int, e *Event, res result) {
	if e.Outcome != "off" && (e.Outcome != "failures" || len(res.failures) > 0) {
		w.outcome(s, n, e, res, "")
	}
}

func (w *ideal) publish(s *Sent, element int, e *Event, res result) {
	for n, f := range res.effects {
		id := s.eventID(element, f.place)
		if w.id != nil {
			id = w.id(s, element, f, n)
		}
		if f.trust {
			w.inventory(id, f)
			continue
		}
		w.lcm(id, e, f, s)
	}
}

func (w *ideal) time() string {
	w.written++
	return time.Unix(int64(w.written), 0).UTC().Format(time.RFC3339)
}

func (w *ideal) sequence(s *Sent) int64 {
	if w.number != nil {
		return w.number(s)
	}
	w.seq++
	return w.seq
}

func (w *ideal) lcm(id string, e *Event, f effect, s *Sent) {
	event := map[string]any{"cmHandleId": f.handle, "alternateId": f.alt}
	if f.old != nil {
		event["oldValues"] = f.old
	}
	if f.new != nil {
		event["newValues"] = f.new
	}
	corr := e.Correlation
	if corr == "" {
		corr = f.handle
	}
	w.h.LCM = append(w.h.LCM, Record{
		Offset: int64(len(w.h.LCM)), Key: []byte(f.handle),
		Value: jsonOf(map[string]any{"event": event, "eventId": id, "eventCorrelationId": f.handle, "eventType": lcmPrefix + f.kind, "eventTime": w.time()}),
		Headers: headersOf("ce_id", id, "ce_type", lcmPrefix+f.kind, "ce_subject", f.handle, "ce_correlationid", corr,
			"ce_causationid", e.ID, "ce_causationsource", e.Source, "ce_sequence", fmt.Sprintf("%019d", w.sequence(s))),
	})
}

func (w *ideal) inventory(id string, f effect) {
	change := map[string]any{"attributeName": "trustLevel", "newAttributeValue": f.new["trustLevel"]}
	if f.old != nil {
		change["oldAttributeValue"] = f.old["trustLevel"]
	}
	w.h.Inventory = append(w.h.Inventory, Record{
		Offset: int64(len(w.h.Inventory)), Key: []byte(f.handle),
		Value:   jsonOf(map[string]any{"data": map[string]any{"attributeValueChange": []any{change}}}),
		Headers: headersOf("ce_id", id, "ce_correlationid", f.handle, "ce_time", w.time()),
	})
}

func (w *ideal) outcome(s *Sent, element int, e *Event, res result, reason string) {
	failures := []any{}
	for _, f := range res.failures {
		failures = append(failures, map[string]any{"cmHandle": f.handle, "operation": f.op, "errorCode": f.code, "details": reason})
	}
	w.h.Outcomes = append(w.h.Outcomes, Record{
		Offset: int64(len(w.h.Outcomes)), Key: s.Key,
		Value: jsonOf(map[string]any{
			"source":   map[string]any{"topic": s.Topic, "partition": s.Partition, "offset": s.Offset, "id": e.ID},
			"failures": failures, "succeeded": res.succeeded,
		}),
		Headers: headersOf("ce_id", s.eventID(element, place{step: stepOutcome}), "ce_type", "org.onap.ncmp.inventory.outcome.v1",
			"ce_causationid", e.ID, "ce_time", w.time()),
	})
}

func (w *ideal) deadLetter(s *Sent, attempts int) {
	own := headersOf("ncmp_reason", s.Garbage.Reason, "ncmp_text", "", "ncmp_field", "", "ncmp_byte", "-1", "ncmp_topic", s.Topic,
		"ncmp_topic_id", uuid.UUID(s.TopicID).String(), "ncmp_partition", fmt.Sprint(s.Partition), "ncmp_offset", fmt.Sprint(s.Offset),
		"ncmp_timestamp", "then", "ncmp_attempts", fmt.Sprint(attempts))
	w.h.DeadLetters = append(w.h.DeadLetters, Record{
		Offset: int64(len(w.h.DeadLetters)), Key: s.Key, Value: s.Value, Headers: slices.Concat(s.Headers, own),
	})
}

func headersOf(pairs ...string) []Header {
	var hs []Header
	for i := 0; i < len(pairs); i += 2 {
		hs = append(hs, Header{pairs[i], []byte(pairs[i+1])})
	}
	return hs
}

func jsonOf(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps, lists and strings
	}
	return b
}

// A worker that does everything right is found to, whatever the order of its
// partitions.
func TestNothingIsFoundWhereNothingIsWrong(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		h := newIdeal().run(seed, sent(seed, 1500), nil)
		r := Check(h)
		if !r.OK() {
			t.Fatalf("seed %d: %+v\n%s", seed, r, strings.Join(r.Faults, "\n"))
		}
		if r.Effects < 500 || r.DeadLetters < 20 || r.Clusters < 3 || r.Outcomes < 1000 {
			t.Fatalf("seed %d: %+v: the stream is too tame", seed, r)
		}
	}
}

// The same seed gives the same records; another one does not.
func TestASeedIsAStream(t *testing.T) {
	t.Parallel()
	printed := func(seed uint64) string {
		var b strings.Builder
		for _, s := range sent(seed, 400) {
			fmt.Fprintf(&b, "%s %q %q %q\n", &s, s.Key, s.Value, s.Headers)
		}
		return b.String()
	}
	first, again, other := printed(1), printed(1), printed(2)
	if first != again {
		t.Fatal("one seed gave two streams")
	}
	if first == other {
		t.Fatal("two seeds gave one stream")
	}
}
