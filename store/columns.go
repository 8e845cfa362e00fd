package store

import (
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"
)

// columnCodec encodes the large arrays of the write path in one piece. pgx starts
// each statement's parameters in a small buffer and takes an array element by
// element through an interface: growing the one and boxing the others was a
// quarter of the worker's CPU time. What it does not know it leaves to pgx.
type columnCodec struct{ *pgtype.ArrayCodec }

// registerColumns has a connection encode arrays by columnCodec.
func registerColumns(m *pgtype.Map) {
	for _, oid := range [...]uint32{pgtype.TextArrayOID, pgtype.ByteaArrayOID, pgtype.JSONBArrayOID, pgtype.Int8ArrayOID} {
		t, _ := m.TypeForOID(oid)
		m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: columnCodec{t.Codec.(*pgtype.ArrayCodec)}})
	}
}

// PlanEncode is asked once per connection, array type and type of value.
func (c columnCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	element, known := c.ElementType.OID, false
	switch value.(type) {
	case []int64:
		known = element == pgtype.Int8OID
	case []string, pgtype.FlatArray[string]:
		known = element == pgtype.TextOID
	case pgtype.FlatArray[[]byte]:
		known = element != pgtype.Int8OID
	}
	if !known || format != pgtype.BinaryFormatCode {
		return c.ArrayCodec.PlanEncode(m, oid, format, value)
	}
	return columnPlan{element}
}

type columnPlan struct{ element uint32 }

func (p columnPlan) Encode(value any, buf []byte) ([]byte, error) {
	switch v := value.(type) {
	case []int64:
		buf = appendInts(buf, v)
	case []string:
		buf = appendTexts(buf, v)
	case pgtype.FlatArray[string]:
		buf = appendTexts(buf, v)
	case pgtype.FlatArray[[]byte]:
		buf = appendBytes(buf, p.element, v)
	}
	return buf, nil
}

// appendHeader starts an array of n elements and makes room for their size in
// bytes, lengths included.
func appendHeader(buf []byte, element uint32, n, size int, nulls bool) []byte {
	flags := uint32(0)
	if nulls {
		flags = 1
	}
	buf = slices.Grow(buf, 20+size)
	for _, v := range [...]uint32{1, flags, element, uint32(n), 1} { // dimensions, flags, type, length, first index
		buf = binary.BigEndian.AppendUint32(buf, v)
	}
	return buf
}

func appendInts(buf []byte, values []int64) []byte {
	buf = appendHeader(buf, pgtype.Int8OID, len(values), 12*len(values), false)
	for _, v := range values {
		buf = binary.BigEndian.AppendUint32(buf, 8)
		buf = binary.BigEndian.AppendUint64(buf, uint64(v))
	}
	return buf
}

func appendTexts(buf []byte, values []string) []byte {
	size := 0
	for _, v := range values {
		size += 4 + len(v)
	}
	buf = appendHeader(buf, pgtype.TextOID, len(values), size, false)
	for _, v := range values {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(v)))
		buf = append(buf, v...)
	}
	return buf
}

// appendBytes appends text, bytea or jsonb; a nil element is a null.
func appendBytes(buf []byte, element uint32, values [][]byte) []byte {
	var prefix []byte
	if element == pgtype.JSONBOID {
		prefix = []byte{1} // the version of jsonb's binary form
	}
	size, nulls := 0, false
	for _, v := range values {
		size += 4 + len(prefix) + len(v)
		nulls = nulls || v == nil
	}
	buf = appendHeader(buf, element, len(values), size, nulls)
	for _, v := range values {
		if v == nil {
			buf = binary.BigEndian.AppendUint32(buf, 1<<32-1)
			continue
		}
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(prefix)+len(v)))
		buf = append(append(buf, prefix...), v...)
	}
	return buf
}
