package consumer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// Metadata is what the cluster says about topics.
type Metadata struct {
	ClusterID string
	Brokers   []int32
	Topics    map[string]TopicInfo
}

// TopicInfo describes a topic. A topic that does not exist, or may not be
// described, has Err and nothing else.
type TopicInfo struct {
	Name string
	ID   [16]byte
	// Leaders by partition; -1 while there is none.
	Leaders []int32
	Err     error
}

// Metadata asks the cluster itself, never a cache, and never creates a topic.
// It asks in version 10, the first with topic ids: Kafka 2.8 and later.
func (k *Cluster) Metadata(ctx context.Context, topics ...string) (*Metadata, error) {
	md := &Metadata{Topics: make(map[string]TopicInfo, len(topics))}
	c := &call{key: protocol.Metadata, version: 10, flexible: true, client: k.clientID, read: md.read}
	w := &c.body
	w.count(len(topics))
	for _, t := range topics {
		w.i64(0)
		w.i64(0)
		w.compact(t)
		w.tags()
	}
	w.bool(false) // no topic is created by asking
	w.bool(false)
	w.bool(false)
	w.tags()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := k.exchange(ctx, c); err != nil {
		return nil, fmt.Errorf("asking for metadata of %s: %w", strings.Join(topics, ", "), err)
	}
	return md, nil
}

func (md *Metadata) read(r *wireReader) {
	r.i32() // throttled for
	for n := r.count(); n > 0 && r.err == nil; n-- {
		md.Brokers = append(md.Brokers, r.i32())
		r.str()
		r.i32()
		r.str()
		r.tags(nil)
	}
	md.ClusterID = r.str()
	r.i32() // controller
	for n := r.count(); n > 0 && r.err == nil; n-- {
		t := TopicInfo{}
		code := r.i16()
		t.Name, t.ID = r.str(), r.uuid()
		r.skip(1) // internal
		parts := r.count()
		for i := 0; i < parts && r.err == nil; i++ {
			r.i16() // a partition without leader is told by leader -1
			index, leader := r.i32(), r.i32()
			r.i32()
			r.skipInts()
			r.skipInts()
			r.skipInts()
			r.tags(nil)
			for int(index) >= len(t.Leaders) && len(t.Leaders) < parts {
				t.Leaders = append(t.Leaders, -1)
			}
			if index >= 0 && int(index) < len(t.Leaders) {
				t.Leaders[index] = leader
			}
		}
		r.i32()
		r.tags(nil)
		switch {
		case code != 0 && code != int16(kafka.LeaderNotAvailable):
			t = TopicInfo{Name: t.Name, Err: kafka.Error(code)}
		case t.ID == [16]byte{}:
			t = TopicInfo{Name: t.Name, Err: fmt.Errorf("topic %s has no id: inter-broker protocol 2.8 or later is needed", t.Name)}
		}
		md.Topics[t.Name] = t
	}
}

// topicView is what an assignment depends on.
type topicView struct {
	id         [16]byte
	partitions int
}

// view is what can be assigned: the topics that exist.
func (md *Metadata) view() map[string]topicView {
	v := make(map[string]topicView, len(md.Topics))
	for n, t := range md.Topics {
		if t.Err == nil {
			v[n] = topicView{t.ID, len(t.Leaders)}
		}
	}
	return v
}

// changed reports whether some topic is new, another one or has grown since
// v. One that cannot be seen now is no change: it may come back in a moment.
func (md *Metadata) changed(v map[string]topicView) bool {
	for n, now := range md.view() {
		if v[n] != now {
			return true
		}
	}
	return false
}

// viewText puts the view in one order, for comparison by the coordinator.
func viewText(v map[string]topicView) []byte {
	var b []byte
	for _, n := range slices.Sorted(maps.Keys(v)) {
		b = fmt.Appendf(b, "%s %x %d\n", n, v[n].id, v[n].partitions)
	}
	return b
}
