package consumer

import (
	"context"
	"fmt"
	"time"

	kafka "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// fetchPart asks for one partition from an offset on.
type fetchPart struct {
	topicID  [16]byte
	topic    string
	index    int32
	offset   int64
	epoch    int32 // leader epoch of the record before offset, -1 if unknown
	maxBytes int32
}

// fetched is one partition's answer. code and the record set stand for
// themselves: one partition's error says nothing about its neighbours.
type fetched struct {
	topicID     [16]byte
	index       int32
	code        kafka.Error
	end, stable int64 // high watermark and last stable offset
	start       int64 // log start
	// diverged is the end of the part of the log that still is what was read
	// before, -1 if all of it is.
	diverged int64
	aborted  []abortedTxn
	set      []byte // owned by the receiver
}

// fetch asks one broker for committed records of partitions it leads, in the
// order given, and waits up to wait for at least one byte. Parts of one topic
// must stand together.
func (k *Cluster) fetch(ctx context.Context, broker int32, parts []fetchPart, wait time.Duration, maxBytes int32) ([]fetched, error) {
	version, err := k.fetchVersion(ctx, broker)
	if err != nil {
		return nil, err
	}
	names := make(map[string][16]byte)
	var code int16
	out := make([]fetched, 0, len(parts))
	c := &call{key: protocol.Fetch, version: version, flexible: true, client: k.clientID}
	c.read = func(r *wireReader) { code, out = readFetch(r, version, names, out) }
	w := &c.body
	w.i32(-1)
	w.i32(int32(wait.Milliseconds()))
	w.i32(1)
	w.i32(maxBytes)
	w.i8(1) // read committed
	w.i32(0)
	w.i32(-1) // no session: partitions come and go with back-pressure
	topics := 0
	for i := range parts {
		if i == 0 || parts[i].topicID != parts[i-1].topicID {
			topics++
		}
	}
	w.count(topics)
	for i := 0; i < len(parts); {
		n := i
		for n < len(parts) && parts[n].topicID == parts[i].topicID {
			n++
		}
		if version >= 13 {
			*w = append(*w, parts[i].topicID[:]...)
		} else {
			w.compact(parts[i].topic)
			names[parts[i].topic] = parts[i].topicID
		}
		w.count(n - i)
		for ; i < n; i++ {
			p := &parts[i]
			w.i32(p.index)
			w.i32(-1)
			w.i64(p.offset)
			w.i32(p.epoch)
			w.i64(-1)
			w.i32(p.maxBytes)
			w.tags()
		}
		w.tags()
	}
	w.count(0)
	w.compact("") // rack
	w.tags()

	bounded, cancel := context.WithTimeout(ctx, wait+requestTimeout)
	defer cancel()
	err = k.exchange(bounded, brokerCall{c, broker})
	if err == nil && code != 0 {
		err = kafka.Error(code)
	}
	if err != nil {
		k.forgetVersion(broker)
		return nil, fmt.Errorf("fetching from broker %d: %w", broker, err)
	}
	if version < 13 {
		if err := k.checkNames(ctx, names, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// checkNames makes a fetch by name as safe as one by id: what came is taken
// only if the topic still has the id it was asked for under.
func (k *Cluster) checkNames(ctx context.Context, names map[string][16]byte, out []fetched) error {
	ask := make([]string, 0, len(names))
	for n, id := range names {
		for i := range out {
			if out[i].topicID == id && len(out[i].set) > 0 {
				ask = append(ask, n)
				break
			}
		}
	}
	if len(ask) == 0 {
		return nil
	}
	md, err := k.Metadata(ctx, ask...)
	if err != nil {
		return err
	}
	for _, n := range ask {
		if md.Topics[n].ID == names[n] {
			continue
		}
		for i := range out {
			if out[i].topicID == names[n] {
				out[i].code, out[i].set = kafka.UnknownTopicID, nil
			}
		}
	}
	return nil
}

func readFetch(r *wireReader, version int16, names map[string][16]byte, out []fetched) (code int16, _ []fetched) {
	r.i32() // throttled for
	code = r.i16()
	r.i32()
	for n := r.count(); n > 0 && r.err == nil; n-- {
		var id [16]byte
		if version >= 13 {
			id = r.uuid()
		} else {
			id = names[r.str()]
		}
		for n := r.count(); n > 0 && r.err == nil; n-- {
			f := fetched{topicID: id, index: r.i32(), code: kafka.Error(r.i16())}
			f.end, f.stable, f.start, f.diverged = r.i64(), r.i64(), r.i64(), -1
			for n := r.count(); n > 0 && r.err == nil; n-- {
				f.aborted = append(f.aborted, abortedTxn{producer: r.i64(), first: r.i64()})
				r.tags(nil)
			}
			r.i32()
			f.set = r.bytes()
			r.tags(func(tag int) {
				if tag == 0 {
					r.i32()
					f.diverged = r.i64()
				}
			})
			out = append(out, f)
		}
		r.tags(nil)
	}
	r.tags(nil)
	return code, out
}
