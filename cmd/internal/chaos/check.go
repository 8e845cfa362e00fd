package chaos

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/google/uuid"
)

// Check holds a history against the model. Outcomes are expected of a worker
// with outcomes: all, LCM events in version v2 with lcm.events: all.
func Check(h *History) *Report {
	c := &checker{h: h, r: &Report{Records: len(h.Inputs)}}
	c.lcm = c.messages(h.LCM, "LCM event", decodeLCM, true)
	c.inventory = c.messages(h.Inventory, "inventory event", decodeTrust, false)
	c.readAnswers()
	c.predict()
	c.own()
	c.shared()
	c.deadLetters()
	c.rows()
	c.secrets()
	return c.r
}

type checker struct {
	h *History
	r *Report

	// lcm and inventory are first occurrences by handle, in order.
	lcm, inventory map[string][]told
	answers        map[string]answer // first occurrences by id

	m        *model // of the handles that one partition names
	expected map[stream][]expectation
	asked    map[string]string // outcome ids that have to exist, and why
	clusters map[int][]*Sent
	dead     []*Sent
	final    map[string]map[string]any // rows of all
	trust    map[string]string
}

// stream is the events about one handle in one topic.
type stream struct {
	trust  bool
	handle string
}

func (s stream) String() string {
	if s.trust {
		return "trust level of " + s.handle
	}
	return s.handle
}

// expectation is an effect that has to be published.
type expectation struct {
	effect
	id    string
	from  *Sent
	event *Event
}

// String is short; the values stay out, they are in the model.
func (e expectation) String() string {
	return fmt.Sprintf("%s %s of %s[%d] in %s", e.handle, e.kind, e.op, e.index, e.from)
}

// messages sorts published records by handle and judges what can be judged
// without the input: form, repeats, sequence, partition.
func (c *checker) messages(records []Record, what string, decode func(*Record) (told, error), sequenced bool) map[string][]told {
	byHandle, byID := map[string][]told{}, map[string]told{}
	partitions := map[string]int32{}
	var order resend
	defer order.end(c.r, what)
	for i := range records {
		rec := &records[i]
		t, err := decode(rec)
		if err != nil {
			c.r.fault(&c.r.Wrong, "%s at %d/%d: %v", what, rec.Partition, rec.Offset, err)
			continue
		}
		if before, again := byID[t.id]; again {
			if equalRecords(before.record, rec) {
				c.r.Repeated++
			} else {
				c.r.fault(&c.r.Doubled, "%s %s of %s came twice, with different content", what, t.id, t.handle)
			}
			order.see(c.r, what, t.handle, t.id)
			continue
		}
		order.see(c.r, what, t.handle, t.id)
		if p, known := partitions[t.handle]; known && p != rec.Partition {
			c.r.fault(&c.r.OutOfOrder, "%ss of %s stand in partitions %d and %d", what, t.handle, p, rec.Partition)
		}
		byID[t.id], partitions[t.handle] = t, rec.Partition
		seen := byHandle[t.handle]
		if sequenced && len(seen) > 0 && seen[len(seen)-1].sequence >= t.sequence {
			c.r.fault(&c.r.OutOfOrder, "%s %s of %s has sequence %d after %d", what, t.id, t.handle, t.sequence, seen[len(seen)-1].sequence)
		}
		byHandle[t.handle] = append(seen, t)
	}
	return byHandle
}

func equalRecords(a, b *Record) bool {
	return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) && reflect.DeepEqual(a.Headers, b.Headers)
}

// resend judges repeats: what was not yet known to be published is sent again, in
// order and to its end, before anything new. A repeat that stands alone comes
// from a publisher that had lost its right to publish. The zero value is ready.
type resend struct {
	lanes map[string]*lane
}

// lane is what came in one order: the events of one handle, for example.
type lane struct {
	place map[string]int // by id, in order of first occurrence
	last  int            // the place of what came last
}

// see takes the next record of a lane; without a name it has no order to keep.
func (o *resend) see(r *Report, what, name, id string) {
	if name == "" {
		return
	}
	if o.lanes == nil {
		o.lanes = map[string]*lane{}
	}
	l := o.lanes[name]
	if l == nil {
		l = &lane{place: map[string]int{}, last: -1}
		o.lanes[name] = l
	}
	at, again := l.place[id]
	if !again {
		at = len(l.place)
		l.place[id] = at
	}
	if at > l.last+1 {
		r.fault(&r.OutOfOrder, "%s %s of %s came while the ones before it were being sent again", what, id, name)
	}
	l.last = at
}

func (o *resend) end(r *Report, what string) {
	for name, l := range o.lanes {
		if l.last != len(l.place)-1 {
			r.fault(&r.OutOfOrder, "%ss of %s end with an old one", what, name)
		}
	}
}

// readAnswers collects the outcomes, and judges repeats and order.
func (c *checker) readAnswers() {
	c.answers = map[string]answer{}
	last := map[string]int64{}
	var order resend
	defer order.end(c.r, "outcome")
	for i := range c.h.Outcomes {
		rec := &c.h.Outcomes[i]
		a, err := decodeOutcome(rec)
		if err != nil {
			c.r.fault(&c.r.Wrong, "outcome at %d/%d: %v", rec.Partition, rec.Offset, err)
			continue
		}
		lane := laneOf(a.topic, a.partition, rec.Key)
		order.see(c.r, "outcome", lane, a.id)
		if before, again := c.answers[a.id]; again {
			if equalRecords(before.record, rec) {
				c.r.Repeated++
			} else {
				c.r.fault(&c.r.Doubled, "outcome %s came twice, with different content", a.id)
			}
			continue
		}
		c.answers[a.id] = a
		if o, known := last[lane]; known && o > a.offset && lane != "" {
			c.r.fault(&c.r.OutOfOrder, "outcome of %s offset %d came after that of %d", lane, a.offset, o)
		}
		last[lane] = a.offset
	}
}

// laneOf names what keeps the order of its input partition in an output topic:
// the records of one key. Those without a key have none.
func laneOf(topic string, partition int32, key []byte) string {
	if key == nil {
		return ""
	}
	return fmt.Sprintf("%s/%d %q", topic, partition, key)
}

// predict applies all that only one partition decides.
func (c *checker) predict() {
	c.m, c.expected, c.asked, c.clusters = newModel(), map[stream][]expectation{}, map[string]string{}, map[int][]*Sent{}
	for i := range c.h.Inputs {
		s := &c.h.Inputs[i]
		if s.Garbage != nil {
			c.dead = append(c.dead, s)
			if s.Garbage.EventID != "" {
				c.answer(s, 0, &Event{ID: s.Garbage.EventID}, result{failures: []failure{{"", "", codeUnknown}}}, s.Garbage.Reason)
			}
			continue
		}
		c.r.Events += len(s.Events)
		if s.Cluster >= 0 {
			c.clusters[s.Cluster] = append(c.clusters[s.Cluster], s)
			continue
		}
		for n := range s.Events {
			e := &s.Events[n]
			res := c.m.apply(e, s.Key)
			for _, f := range res.effects {
				at := stream{f.trust, f.handle}
				c.expected[at] = append(c.expected[at], expectation{f, s.eventID(n, f.place), s, e})
			}
			if e.Outcome == "off" || e.Outcome == "failures" && len(res.failures) == 0 {
				continue
			}
			c.answer(s, n, e, res, "")
		}
	}
}

// answer holds one outcome against what an event came to.
func (c *checker) answer(s *Sent, element int, e *Event, want result, reason string) {
	id := s.eventID(element, place{step: stepOutcome})
	c.asked[id] = s.String()
	c.r.Outcomes++
	got, ok := c.answers[id]
	if !ok {
		c.r.fault(&c.r.Lost, "outcome of %s event %s is missing", s, e.ID)
		return
	}
	if d := differs(&got, s, e.ID, &want); d != "" {
		c.r.fault(&c.r.Wrong, "outcome of %s event %s: %s", s, e.ID, d)
	}
	if got.reason != reason {
		c.r.fault(&c.r.Wrong, "outcome of %s event %s: reason %q, want %q", s, e.ID, got.reason, reason)
	}
}

// differs says how an outcome differs from what it should say.
func differs(a *answer, s *Sent, id string, want *result) string {
	switch {
	case a.topic != s.Topic || a.partition != s.Partition || a.offset != s.Offset || a.cause != id:
		return fmt.Sprintf("its source is %s/%d@%d event %s", a.topic, a.partition, a.offset, a.cause)
	case !bytes.Equal(a.record.Key, s.Key):
		return fmt.Sprintf("its key is %q", a.record.Key)
	case !slices.Equal(a.failures, want.failures) || a.succeeded != want.succeeded:
		return fmt.Sprintf("failures %v and %d successes, want %v and %d", a.failures, a.succeeded, want.failures, want.succeeded)
	}
	return ""
}

// own compares, handle by handle, what the model predicts.
func (c *checker) own() {
	ofClusters := map[string]bool{}
	for n := range c.clusters {
		for i := range handlesOfCluster {
			ofClusters[sharedID(n, i)] = true
		}
	}
	for _, trust := range []bool{false, true} {
		seen := c.lcm
		if trust {
			seen = c.inventory
		}
		for handle := range seen {
			if at := (stream{trust, handle}); !ofClusters[handle] && c.expected[at] == nil {
				c.expected[at] = []expectation{}
			}
		}
	}
	for at, want := range c.expected {
		seen := c.lcm
		if at.trust {
			seen = c.inventory
		} else {
			c.r.Handles++
		}
		c.r.Effects += len(want)
		compare(c.r, at.String(), want, seen[at.handle],
			func(e expectation) string { return e.id }, func(t told) string { return t.id }, contents)
	}
}

// contents says how a published event differs from the effect that it tells.
func contents(e expectation, t told) string {
	if e.trust {
		if !sameValues(e.old, t.old) || !sameValues(e.new, t.new) {
			return fmt.Sprintf("says %v -> %v, want %v -> %v", t.old, t.new, e.old, e.new)
		}
		return ""
	}
	corr := e.event.Correlation
	if corr == "" {
		corr = e.handle
	}
	switch {
	case t.kind != e.kind:
		return fmt.Sprintf("type %s, want %s", t.kind, e.kind)
	case t.alt != e.alt:
		return fmt.Sprintf("alternate id %q, want %q", t.alt, e.alt)
	case !sameValues(e.old, t.old) || !sameValues(e.new, t.new):
		return fmt.Sprintf("says %v -> %v, want %v -> %v", t.old, t.new, e.old, e.new)
	case t.cause != e.event.ID || t.causeSource != e.event.Source:
		return fmt.Sprintf("caused by %s of %s, want %s of %s", t.cause, t.causeSource, e.event.ID, e.event.Source)
	case t.corr != corr:
		return fmt.Sprintf("correlation id %q, want %q", t.corr, corr)
	}
	return ""
}

// sameValues tells no values at all from an empty set.
func sameValues(a, b map[string]any) bool {
	return (a == nil) == (b == nil) && reflect.DeepEqual(a, b)
}

// added are the headers that a dead letter has in addition.
var added = []string{
	"ncmp_reason", "ncmp_text", "ncmp_field", "ncmp_byte", "ncmp_topic", "ncmp_topic_id",
	"ncmp_partition", "ncmp_offset", "ncmp_timestamp", "ncmp_attempts",
}

// deadLetters holds what was set aside against the garbage that was sent. Its
// order is promised to nobody: one that is too large for the topic waits alone.
func (c *checker) deadLetters() {
	position := func(topic string, partition int32, offset int64) string {
		return fmt.Sprintf("%s/%d@%d", topic, partition, offset)
	}
	seen := map[string]*Record{}
	var got []string
	for i := range c.h.DeadLetters {
		rec := &c.h.DeadLetters[i]
		partition, err1 := strconv.ParseInt(rec.header("ncmp_partition"), 10, 32)
		offset, err2 := strconv.ParseInt(rec.header("ncmp_offset"), 10, 64)
		if err1 != nil || err2 != nil {
			c.r.fault(&c.r.Wrong, "dead letter at %d/%d does not say where it is from", rec.Partition, rec.Offset)
			continue
		}
		at := position(rec.header("ncmp_topic"), int32(partition), offset)
		if before := seen[at]; before != nil {
			if equalRecords(before, rec) {
				c.r.Repeated++
			} else {
				c.r.fault(&c.r.Doubled, "dead letter of %s came twice, with different content", at)
			}
			continue
		}
		seen[at] = rec
		got = append(got, at)
	}
	c.r.DeadLetters = len(c.dead)
	slices.Sort(got)
	want := map[string]*Sent{}
	for _, s := range c.dead {
		want[position(s.Topic, s.Partition, s.Offset)] = s
	}
	compare(c.r, "dead letters", slices.Sorted(maps.Keys(want)), got,
		func(at string) string { return at }, func(at string) string { return at },
		func(at, _ string) string { return c.aside(want[at], seen[at]) })
	for id, a := range c.answers {
		if c.asked[id] == "" {
			c.r.fault(&c.r.Doubled, "outcome %s, of %s event %s, that nobody asked for", id, position(a.topic, a.partition, a.offset), a.cause)
		}
	}
}

// aside says how a dead letter differs from the record that it keeps.
func (c *checker) aside(s *Sent, rec *Record) string {
	switch n := len(s.Headers); {
	case !bytes.Equal(s.Key, rec.Key) || (s.Key == nil) != (rec.Key == nil):
		return fmt.Sprintf("its key is %q", rec.Key)
	case !bytes.Equal(s.Value, rec.Value) || (s.Value == nil) != (rec.Value == nil):
		return "its value is another one"
	case len(rec.Headers) != n+len(added) || !slices.EqualFunc(s.Headers, rec.Headers[:n], func(a, b Header) bool { return a.Key == b.Key && bytes.Equal(a.Value, b.Value) }):
		return "its headers are not what they were"
	case !slices.ContainsFunc(added, func(name string) bool { return name == rec.Headers[n].Key }):
		return "its own headers do not stand last"
	}
	if reason := rec.header("ncmp_reason"); reason != s.Garbage.Reason {
		return fmt.Sprintf("reason %s, want %s", reason, s.Garbage.Reason)
	}
	if id := rec.header("ncmp_topic_id"); id != uuid.UUID(s.TopicID).String() {
		return "it names another topic id: " + id
	}
	return ""
}

// rows compares what is stored in the end.
func (c *checker) rows() {
	want := c.m.rows()
	maps.Copy(want, c.final)
	got := maps.Clone(c.h.Rows)
	for xpath, attributes := range want {
		stored, ok := got[xpath]
		switch {
		case !ok:
			c.r.fault(&c.r.Lost, "row %s is missing", mask(xpath))
		case !reflect.DeepEqual(withoutTime(stored), attributes):
			c.r.fault(&c.r.Wrong, "row %s differs", mask(xpath))
		}
		delete(got, xpath)
	}
	for xpath := range got {
		c.r.fault(&c.r.Doubled, "row %s must not be there", mask(xpath))
	}
	trust := maps.Clone(c.m.trust)
	maps.Copy(trust, c.trust)
	stored := levels(c.h.Trust)
	for handle := range maps.Keys(merged(trust, pointers(stored))) {
		if trust[handle] != stored[handle] {
			c.r.fault(&c.r.Wrong, "trust level of %s is stored as %q, want %q", handle, stored[handle], trust[handle])
		}
	}
}

// levels are the levels that are not the one that need not be stored.
func levels(stored map[string]string) map[string]string {
	out := map[string]string{}
	for handle, level := range stored {
		if level != trustComplete {
			out[handle] = level
		}
	}
	return out
}

func pointers(m map[string]string) map[string]*string {
	out := map[string]*string{}
	for k, v := range m {
		out[k] = &v
	}
	return out
}

func withoutTime(attributes map[string]any) map[string]any {
	out := maps.Clone(attributes)
	delete(out, "last-update-time")
	return out
}

func mask(xpath string) string { return fmt.Sprintf("%q", xpath) }

// secrets looks for private values where none may be.
func (c *checker) secrets() {
	for what, records := range map[string][]Record{"LCM event": c.h.LCM, "inventory event": c.h.Inventory, "outcome": c.h.Outcomes} {
		for i := range records {
			rec := &records[i]
			leaks := bytes.Contains(rec.Value, []byte(secret)) || bytes.Contains(rec.Key, []byte(secret))
			for _, h := range rec.Headers {
				leaks = leaks || bytes.Contains(h.Value, []byte(secret))
			}
			if leaks {
				c.r.fault(&c.r.Wrong, "%s at %d/%d holds a private value", what, rec.Partition, rec.Offset)
			}
		}
	}
}
