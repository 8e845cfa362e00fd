package lcm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/segmentio/kafka-go/compress"

	"ncmp-inventory/inventory"
)

// producer is the identity under which a partition's broker recognizes repeats
// (id and sequence) and refuses a predecessor (epoch).
type producer struct {
	id    int64
	epoch int16
}

// batchWriter builds record batches (format 2) in a buffer of its own. kafka-go
// can send a batch with a producer id only if it comes ready made.
type batchWriter struct {
	codec compress.Codec // nil: not compressed
	buf   []byte
	rest  bytes.Buffer // the compressed records
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Offsets into a record batch, and into the frame that build returns.
const (
	frame         = 4 // kafka-go wants the record set's length in front
	atLength      = frame + 8
	atLeaderEpoch = frame + 12
	atMagic       = frame + 16
	atCRC         = frame + 17
	atAttributes  = frame + 21
	atLastDelta   = frame + 23
	atFirstTime   = frame + 27
	atMaxTime     = frame + 35
	atProducerID  = frame + 43
	atEpoch       = frame + 51
	atSequence    = frame + 53
	atCount       = frame + 57
	headerEnd     = frame + batchHeader
)

// build writes rows as one batch that starts at sequence seq. LCM events get
// their sequence header, which is the row's id. The result stays good until
// the next build.
func (w *batchWriter) build(p producer, seq int32, kind inventory.MessageKind, rows []inventory.OutboxRow, millis int64) ([]byte, error) {
	if cap(w.buf) < headerEnd {
		w.buf = make([]byte, headerEnd, 64<<10)
	}
	b := w.buf[:headerEnd]
	clear(b)
	for i := range rows {
		b = appendRecord(b, &rows[i], i, kind == inventory.LCMEvent)
	}
	w.buf = b
	var attributes uint16
	if w.codec != nil {
		if err := w.compress(b[headerEnd:]); err != nil {
			return nil, err
		}
		// Records that do not shrink go as they are.
		if w.rest.Len() < len(b)-headerEnd {
			b = append(b[:headerEnd], w.rest.Bytes()...)
			attributes = uint16(w.codec.Code())
		}
	}
	be := binary.BigEndian
	be.PutUint32(b, uint32(len(b)-frame))
	be.PutUint32(b[atLength:], uint32(len(b)-frame-12))
	be.PutUint32(b[atLeaderEpoch:], ^uint32(0))
	b[atMagic] = 2
	be.PutUint16(b[atAttributes:], attributes)
	be.PutUint32(b[atLastDelta:], uint32(len(rows)-1))
	be.PutUint64(b[atFirstTime:], uint64(millis))
	be.PutUint64(b[atMaxTime:], uint64(millis))
	be.PutUint64(b[atProducerID:], uint64(p.id))
	be.PutUint16(b[atEpoch:], uint16(p.epoch))
	be.PutUint32(b[atSequence:], uint32(seq))
	be.PutUint32(b[atCount:], uint32(len(rows)))
	be.PutUint32(b[atCRC:], crc32.Checksum(b[atAttributes:], castagnoli))
	return b, nil
}

func (w *batchWriter) compress(records []byte) error {
	w.rest.Reset()
	z := w.codec.NewWriter(&w.rest)
	_, err := z.Write(records)
	if err2 := z.Close(); err == nil {
		err = err2
	}
	if err != nil {
		return fmt.Errorf("compressing a record batch: %w", err)
	}
	return nil
}

// writers are shared by all partitions: only those in flight need a buffer.
var writers = sync.Pool{New: func() any { return new(batchWriter) }}

func (w *batchWriter) free() {
	if cap(w.buf) <= 2*maxBatch {
		writers.Put(w)
	}
}

func appendRecord(b []byte, r *inventory.OutboxRow, delta int, sequence bool) []byte {
	count, n := binary.Varint(r.Headers)
	if n <= 0 { // no block at all: no headers
		count, n = 0, 0
	}
	headers := r.Headers[n:]
	size := len(headers)
	if sequence {
		count++
		size += sequenceHeader
	}
	size += varintLen(count)

	b = binary.AppendVarint(b, int64(recordSize(len(r.Key), len(r.Value), r.Key == nil, r.Value == nil, size, delta)))
	b = append(b, 0) // attributes
	b = append(b, 0) // timestamp delta
	b = binary.AppendVarint(b, int64(delta))
	b = appendNullable(b, r.Key)
	b = appendNullable(b, r.Value)
	b = binary.AppendVarint(b, count)
	b = append(b, headers...)
	if sequence {
		b = append(b, byte(len(sequenceName)<<1))
		b = append(b, sequenceName...)
		b = append(b, sequenceDigits<<1)
		b = appendSequence(b, r.ID)
	}
	return b
}

func appendNullable(b, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(b, -1)
	}
	b = binary.AppendVarint(b, int64(len(v)))
	return append(b, v...)
}

// appendSequence appends id in 19 digits: as text it sorts as it counts.
func appendSequence(b []byte, id int64) []byte {
	var d [sequenceDigits]byte
	for i := len(d) - 1; i >= 0; i-- {
		d[i] = byte('0' + id%10)
		id /= 10
	}
	return append(b, d[:]...)
}

// advance is the sequence n records after seq: after the largest int32 comes 0.
func advance(seq int32, n int) int32 {
	return int32((int64(seq) + int64(n)) & (1<<31 - 1))
}

// fitting is how many rows from the start go into one batch of at most limit
// bytes (uncompressed): at least one.
func fitting(kind inventory.MessageKind, rows []inventory.OutboxRow, limit int) int {
	total := batchHeader
	for i := range rows {
		r := &rows[i]
		headers := len(r.Headers) + 1
		if kind == inventory.LCMEvent {
			headers += sequenceHeader
		}
		total += framed(recordSize(len(r.Key), len(r.Value), r.Key == nil, r.Value == nil, headers, i))
		if total > limit && i > 0 {
			return i
		}
	}
	return len(rows)
}
