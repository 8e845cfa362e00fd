package consumer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/segmentio/kafka-go/compress"

	"ncmp-inventory/inventory"
)

// The record batch of Kafka's message format 2: a header of 61 bytes, then
// records, compressed or not. Offsets of the fields after the length.
const (
	batchOverhead = 12 // base offset and length
	batchHeader   = 49 // from the leader epoch to the record count
	minRecord     = 7  // length, attributes, two deltas, key, value, headers

	attrCodec   = 0x07
	attrLogTime = 0x08
	attrTxn     = 0x10
	attrControl = 0x20
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	// errCorrupt is a record batch that cannot be what the producer wrote.
	errCorrupt = errors.New("record batch is damaged")
	// errOversize is a record batch that grows beyond the bound when it is
	// decompressed.
	errOversize = errors.New("record batch is too large when decompressed")
)

// span is one record batch that holds visible records, still as it came: it is
// decompressed and decoded when its lane gets to it, so that what waits costs
// no more memory than it did on the wire.
type span struct {
	base, next int64 // next lies after the batch and what is invisible behind it
	epoch      int32
	count      int32
	attrs      uint16
	first      int64 // timestamps in ms
	latest     int64
	body       []byte
}

// spanCost is what a span is charged for beside its bytes.
const spanCost = 128

func (s *span) cost() int { return len(s.body) + spanCost }

// abortedTxn says that the records of a producer from an offset on were
// aborted, up to that producer's next control record.
type abortedTxn struct{ producer, first int64 }

// scan walks a fetched set of record batches from offset from on. It appends
// those with visible records to out and returns the offset after all it saw,
// visible or not, and the leader epoch there (-1 if it saw none). A last batch
// that the broker cut off is left for the next fetch.
func scan(set []byte, from int64, aborted []abortedTxn, out []span) (spans []span, next int64, epoch int32, err error) {
	spans, next, epoch = out, from, -1
	mark := len(out)
	var gone map[int64]bool // producers within an aborted transaction
	for len(set) >= batchOverhead+batchHeader {
		base, n := int64(binary.BigEndian.Uint64(set)), int64(int32(binary.BigEndian.Uint32(set[8:])))
		if n < batchHeader {
			return spans, next, epoch, fmt.Errorf("%w at offset %d: length %d", errCorrupt, base, n)
		}
		if int64(len(set)) < batchOverhead+n {
			break
		}
		x := set[batchOverhead : batchOverhead+n]
		set = set[batchOverhead+n:]
		if x[4] != 2 {
			return spans, next, epoch, fmt.Errorf("%w at offset %d: message format %d, 2 is needed", errCorrupt, base, x[4])
		}
		if crc32.Checksum(x[9:], castagnoli) != binary.BigEndian.Uint32(x[5:]) {
			return spans, next, epoch, fmt.Errorf("%w at offset %d: checksum", errCorrupt, base)
		}
		s := span{
			base: base, epoch: int32(binary.BigEndian.Uint32(x)),
			attrs: binary.BigEndian.Uint16(x[9:]),
			first: int64(binary.BigEndian.Uint64(x[15:])), latest: int64(binary.BigEndian.Uint64(x[23:])),
			count: int32(binary.BigEndian.Uint32(x[45:])), body: x[49:],
		}
		delta, producer := int64(int32(binary.BigEndian.Uint32(x[11:]))), int64(binary.BigEndian.Uint64(x[31:]))
		s.next = base + delta + 1
		if delta < 0 || base < 0 || s.next < base || s.count < 0 {
			return spans, next, epoch, fmt.Errorf("%w at offset %d: %d records up to +%d", errCorrupt, base, s.count, delta)
		}
		for len(aborted) > 0 && aborted[0].first < s.next {
			if gone == nil {
				gone = map[int64]bool{}
			}
			gone[aborted[0].producer] = true
			aborted = aborted[1:]
		}
		visible := s.count > 0 && s.next > from
		switch {
		case s.attrs&attrControl != 0:
			visible = false
			if endsAborted(s.body) {
				delete(gone, producer)
			}
		case s.attrs&attrTxn != 0 && gone[producer]:
			visible = false
		}
		if s.next <= next {
			continue // older than what was asked for
		}
		next, epoch = s.next, s.epoch
		if visible {
			spans = append(spans, s)
		} else if len(spans) > mark {
			spans[len(spans)-1].next = next
		}
	}
	return spans, next, epoch, nil
}

// endsAborted tells whether a control batch's record is an abort marker: its
// key is a version and a type, both int16, and type 0 is abort.
func endsAborted(body []byte) bool {
	r := recordReader{body: body, left: 1}
	var rec inventory.Record
	return r.next(&rec, nil) == nil && len(rec.Key) >= 4 && rec.Key[2] == 0 && rec.Key[3] == 0
}

// open returns the records of a span. A compressed one is expanded into a
// buffer of its own, of at most limit bytes.
func (s *span) open(limit int) (recordReader, error) {
	r := recordReader{body: s.body, left: s.count, span: s}
	if c := compress.Compression(s.attrs & attrCodec); c != compress.None {
		codec := c.Codec()
		if codec == nil {
			return r, fmt.Errorf("%w at offset %d: unknown compression %d", errCorrupt, s.base, c)
		}
		zr := codec.NewReader(bytes.NewReader(s.body))
		buf := bytes.NewBuffer(make([]byte, 0, min(4*len(s.body)+bytes.MinRead, limit+bytes.MinRead)))
		_, err := io.Copy(buf, io.LimitReader(zr, int64(limit)+1))
		if cerr := zr.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return r, fmt.Errorf("%w at offset %d: %s: %w", errCorrupt, s.base, codec.Name(), err)
		}
		if buf.Len() > limit {
			return r, fmt.Errorf("%w at offset %d", errOversize, s.base)
		}
		r.body, r.expanded = buf.Bytes(), buf.Len()
	}
	if int64(r.left)*minRecord > int64(len(r.body)) {
		return r, fmt.Errorf("%w at offset %d: %d records in %d bytes", errCorrupt, s.base, r.left, len(r.body))
	}
	return r, nil
}

// recordReader yields the records of one span. Keys, values and headers alias
// its buffer.
type recordReader struct {
	body     []byte
	left     int32
	expanded int // bytes of a decompressed buffer, 0 if it was not compressed
	span     *span
}

// next decodes one record. h may be nil if headers are of no interest.
func (r *recordReader) next(rec *inventory.Record, h *headers) error {
	n, b, ok := varint(r.body)
	if !ok || n < minRecord-1 || n > int64(len(b)) {
		return r.damaged()
	}
	rest := b[n:]
	b = b[1:n] // without the attributes, which are unused
	var ms, delta, count int64
	if ms, b, ok = varint(b); !ok {
		return r.damaged()
	}
	if delta, b, ok = varint(b); !ok || delta < 0 {
		return r.damaged()
	}
	if rec.Key, b, ok = chunk(b); !ok {
		return r.damaged()
	}
	if rec.Value, b, ok = chunk(b); !ok {
		return r.damaged()
	}
	if count, b, ok = varint(b); !ok || count < 0 || count > int64(len(b)/2) {
		return r.damaged()
	}
	rec.Headers = nil
	if h != nil {
		if rec.Headers, ok = h.read(b, int(count)); !ok {
			return r.damaged()
		}
	}
	rec.Offset, rec.LeaderEpoch, rec.Bytes = delta, -1, int(n)
	if s := r.span; s != nil {
		rec.Offset += s.base
		if rec.Offset >= s.next {
			return r.damaged()
		}
		rec.LeaderEpoch = s.epoch
		if ms += s.first; s.attrs&attrLogTime != 0 {
			ms = s.latest
		}
	}
	rec.Timestamp = time.UnixMilli(ms)
	r.body = rest
	r.left--
	return nil
}

func (r *recordReader) damaged() error {
	var base int64
	if r.span != nil {
		base = r.span.base
	}
	return fmt.Errorf("%w at offset %d: %d records before its end", errCorrupt, base, r.left)
}

// headers hands out header slices from one arena, and the text of header keys
// without an allocation for those seen before.
type headers struct {
	arena []inventory.Header
	keys  map[string]string
}

// maxHeaderKeys bounds the keys that are remembered.
const maxHeaderKeys = 256

func newHeaders() *headers { return &headers{keys: map[string]string{}} }

// reset takes back every slice handed out.
func (h *headers) reset() {
	clear(h.arena)
	h.arena = h.arena[:0]
}

func (h *headers) read(b []byte, count int) ([]inventory.Header, bool) {
	if cap(h.arena)-len(h.arena) < count {
		// Slices handed out stay with the old arena.
		h.arena = make([]inventory.Header, 0, max(2*cap(h.arena), count, 64))
	}
	from := len(h.arena)
	for ; count > 0; count-- {
		var key, value []byte
		var ok bool
		if key, b, ok = chunk(b); !ok {
			return nil, false
		}
		if value, b, ok = chunk(b); !ok {
			return nil, false
		}
		name, known := h.keys[string(key)]
		if !known {
			name = string(key)
			if len(h.keys) < maxHeaderKeys {
				h.keys[name] = name
			}
		}
		h.arena = append(h.arena, inventory.Header{Key: name, Value: value})
	}
	if from == len(h.arena) {
		return nil, true
	}
	return h.arena[from:len(h.arena):len(h.arena)], true
}

func varint(b []byte) (int64, []byte, bool) {
	v, n := binary.Varint(b)
	if n <= 0 {
		return 0, nil, false
	}
	return v, b[n:], true
}

// chunk reads a length and that many bytes; a negative length is null.
func chunk(b []byte) (v, rest []byte, ok bool) {
	n, b, ok := varint(b)
	if !ok || n > int64(len(b)) {
		return nil, nil, false
	}
	if n < 0 {
		return nil, b, true
	}
	return b[:n:n], b[n:], true
}
