package consumer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go/protocol"
)

// kafka-go's transport does the connections, TLS, SASL and routing; a few
// requests it does not know (metadata with topic ids, fetch by topic id) or
// gets wrong (heartbeat) are written here by hand and sent through the
// transport's raw exchange. Nothing is registered with kafka-go, so its own
// messages keep working beside ours.

// maxResponse bounds what a broker can make us read.
const maxResponse = 1 << 30

var errWire = errors.New("malformed answer from the broker")

// call is one request and how its answer is read.
type call struct {
	key      protocol.ApiKey
	version  int16
	flexible bool
	client   string
	body     wireWriter
	read     func(*wireReader)
}

// ApiKey implements protocol.Message.
func (c *call) ApiKey() protocol.ApiKey { return c.key } //nolint:staticcheck // the interface's spelling

// Required says that kafka-go is to leave the exchange to us.
func (c *call) Required(map[protocol.ApiKey]int16) bool { return true }

// RawExchange writes the request and reads the answer. A connection carries
// one request at a time, so any correlation id will do. After an error the
// transport drops the connection.
func (c *call) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	w := make(wireWriter, 4, 32+len(c.client)+len(c.body))
	w.i16(int16(c.key))
	w.i16(c.version)
	w.i32(1)
	w.i16(int16(len(c.client)))
	w = append(w, c.client...)
	if c.flexible {
		w.tags()
	}
	w = append(w, c.body...)
	binary.BigEndian.PutUint32(w, uint32(len(w)-4))
	if _, err := rw.Write(w); err != nil {
		return nil, err
	}
	r := &wireReader{r: rw, n: 8, flexible: c.flexible}
	size := r.i32()
	if id := r.i32(); r.err == nil && (id != 1 || size < 4 || size > maxResponse) {
		r.err = fmt.Errorf("%w: %d bytes for request %d", errWire, size, id)
	}
	r.n = int(size) - 4
	if c.flexible {
		r.tags(nil)
	}
	if r.err == nil {
		c.read(r)
	}
	if r.err != nil {
		return nil, fmt.Errorf("%v v%d: %w", c.key, c.version, r.err)
	}
	// A newer broker may append what we do not know.
	if _, err := io.CopyN(io.Discard, rw, int64(r.n)); err != nil {
		return nil, err
	}
	return c, nil
}

// brokerCall goes to one broker, groupCall to the group's coordinator; a plain
// call goes to whichever broker the transport is connected to.
type brokerCall struct {
	*call
	id int32
}

func (c brokerCall) Broker(cl protocol.Cluster) (protocol.Broker, error) {
	b, ok := cl.Brokers[c.id]
	if !ok {
		return b, fmt.Errorf("broker %d is not known yet", c.id)
	}
	return b, nil
}

type groupCall struct {
	*call
	group string
}

func (c groupCall) Group() string { return c.group }

// wireWriter appends Kafka's primitive types.
type wireWriter []byte

func (w *wireWriter) i8(v int8)   { *w = append(*w, byte(v)) }
func (w *wireWriter) i16(v int16) { *w = binary.BigEndian.AppendUint16(*w, uint16(v)) }
func (w *wireWriter) i32(v int32) { *w = binary.BigEndian.AppendUint32(*w, uint32(v)) }
func (w *wireWriter) i64(v int64) { *w = binary.BigEndian.AppendUint64(*w, uint64(v)) }
func (w *wireWriter) bool(v bool) { *w = append(*w, map[bool]byte{true: 1}[v]) }
func (w *wireWriter) tags()       { *w = append(*w, 0) }

// count starts a compact array or string of n.
func (w *wireWriter) count(n int) { *w = binary.AppendUvarint(*w, uint64(n)+1) }

func (w *wireWriter) compact(s string) { w.count(len(s)); *w = append(*w, s...) }
func (w *wireWriter) str(s string)     { w.i16(int16(len(s))); *w = append(*w, s...) }

// nullable is a string whose absence is "".
func (w *wireWriter) nullable(s string) {
	if s == "" {
		w.i16(-1)
		return
	}
	w.str(s)
}

// wireReader reads them. After the first error it yields zeros.
type wireReader struct {
	r        io.Reader
	n        int // what is left of the answer
	flexible bool
	err      error
	scratch  [16]byte
}

func (r *wireReader) fixed(n int) []byte {
	b := r.scratch[:n]
	r.fill(b)
	return b
}

func (r *wireReader) fill(b []byte) {
	if r.err == nil && r.n < len(b) {
		r.err = errWire
	}
	if r.err == nil {
		_, r.err = io.ReadFull(r.r, b)
		r.n -= len(b)
	}
	if r.err != nil {
		clear(b)
	}
}

func (r *wireReader) i16() int16 { return int16(binary.BigEndian.Uint16(r.fixed(2))) }
func (r *wireReader) i32() int32 { return int32(binary.BigEndian.Uint32(r.fixed(4))) }
func (r *wireReader) i64() int64 { return int64(binary.BigEndian.Uint64(r.fixed(8))) }

func (r *wireReader) uuid() (id [16]byte) { copy(id[:], r.fixed(16)); return id }

// ReadByte makes it an io.ByteReader for varints.
func (r *wireReader) ReadByte() (byte, error) { return r.fixed(1)[0], r.err }

func (r *wireReader) uvarint() int {
	v, err := binary.ReadUvarint(r)
	if err != nil && r.err == nil {
		r.err = errWire
	}
	if v > maxResponse {
		r.err = errWire
		return 0
	}
	return int(v)
}

// count reads the length of an array; -1 is null.
func (r *wireReader) count() int {
	var n int
	if r.flexible {
		n = r.uvarint() - 1
	} else {
		n = int(r.i32())
	}
	if n > r.n { // every element takes at least one byte
		r.err = errWire
	}
	if r.err != nil {
		return 0
	}
	return n
}

// bytes reads a byte string of its own; nil is null.
func (r *wireReader) bytes() []byte {
	n := r.count()
	if n < 0 || r.err != nil {
		return nil
	}
	b := make([]byte, n)
	r.fill(b)
	return b
}

func (r *wireReader) str() string {
	if r.flexible {
		return string(r.bytes())
	}
	n := int(r.i16())
	if n > r.n {
		r.err = errWire
	}
	if n < 0 || r.err != nil {
		return ""
	}
	b := make([]byte, n)
	r.fill(b)
	return string(b)
}

// skip passes over n bytes.
func (r *wireReader) skip(n int) {
	for ; n > 0 && r.err == nil; n -= len(r.scratch) {
		r.fixed(min(n, len(r.scratch)))
	}
}

// skipInts passes over an array of int32.
func (r *wireReader) skipInts() { r.skip(4 * r.count()) }

// tags reads tagged fields; field may read one's content and leave the rest.
func (r *wireReader) tags(field func(tag int)) {
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		tag, size := r.uvarint(), r.uvarint()
		if size > r.n {
			r.err = errWire
			return
		}
		after := r.n - size
		if field != nil {
			field(tag)
		}
		if r.n < after {
			r.err = errWire
		}
		r.skip(r.n - after)
	}
}
