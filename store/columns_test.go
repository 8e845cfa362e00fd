package store_test

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"ncmp-inventory/store"
)

// TestColumnsAreEncodedAsPgxDoes compares bytes, with values that pgx is left
// with among them.
func TestColumnsAreEncodedAsPgxDoes(t *testing.T) {
	t.Parallel()
	theirs, ours := pgtype.NewMap(), pgtype.NewMap()
	store.RegisterColumns(ours)
	rapid.Check(t, func(t *rapid.T) {
		ints := rapid.SliceOf(rapid.Int64()).Draw(t, "ints")
		texts := rapid.SliceOf(rapid.String()).Draw(t, "texts")
		values := rapid.SliceOf(rapid.OneOf(
			rapid.SliceOf(rapid.Byte()), rapid.Just([]byte{}), rapid.Just([]byte(nil)))).Draw(t, "bytes")
		objects := make([][]byte, len(values))
		for i, v := range values {
			if v != nil {
				objects[i] = append(append([]byte(`{"n": "`), bytes.Repeat([]byte("x"), len(v))...), `"}`...)
			}
		}
		before := rapid.SliceOf(rapid.Byte()).Draw(t, "before")
		for _, c := range []struct {
			oid    uint32
			values any
		}{
			{pgtype.Int8ArrayOID, ints},
			{pgtype.Int8ArrayOID, ints[:0]},
			{pgtype.Int8ArrayOID, []int64(nil)},
			{pgtype.Int4ArrayOID, []int32{1, 2}},
			{pgtype.TextArrayOID, texts},
			{pgtype.TextArrayOID, pgtype.FlatArray[string](texts)},
			{pgtype.TextArrayOID, pgtype.FlatArray[[]byte](objects)},
			{pgtype.TextArrayOID, [][]string{{"a"}, {"b"}}},
			{pgtype.VarcharArrayOID, texts},
			{pgtype.ByteaArrayOID, pgtype.FlatArray[[]byte](values)},
			{pgtype.ByteaArrayOID, values},
			{pgtype.JSONBArrayOID, pgtype.FlatArray[[]byte](objects)},
		} {
			for _, format := range []int16{pgtype.BinaryFormatCode, pgtype.TextFormatCode} {
				want, err := theirs.Encode(c.oid, format, c.values, bytes.Clone(before))
				require.NoError(t, err)
				got, err := ours.Encode(c.oid, format, c.values, bytes.Clone(before))
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
			require.Equal(t, theirs.FormatCodeForOID(c.oid), ours.FormatCodeForOID(c.oid))
		}
	})
}

// BenchmarkColumn encodes the xpaths of a batch with the store's types and with
// pgx's own.
func BenchmarkColumn(b *testing.B) {
	xpaths := make([]string, 2000)
	for i := range xpaths {
		xpaths[i] = "/dmi-registry/cm-handles[@id='ch-00000001']/additional-properties[@name='private-1']"
	}
	ours := pgtype.NewMap()
	store.RegisterColumns(ours)
	for name, m := range map[string]*pgtype.Map{"ours": ours, "pgx": pgtype.NewMap()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err := m.Encode(pgtype.TextArrayOID, pgtype.BinaryFormatCode, xpaths, make([]byte, 0, 256))
				require.NoError(b, err)
			}
		})
	}
}
