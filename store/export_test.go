package store

import (
	"context"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool is the pool of a store, for tests that look at its sessions.
func Pool(s *Store) *pgxpool.Pool { return s.pool }

// HashOf is the hash that the outbox stores.
func HashOf(key []byte) int32 { return hashOf(key) }

// TakeIDs returns fragment ids as a writer gets them.
func TakeIDs(ctx context.Context, s *Store, n int) ([]int64, error) { return s.ids.take(ctx, n) }

// Statements of the hot path that read or write data nodes, with the types of
// their parameters.
var Statements = map[string]struct{ SQL, Types string }{
	"handles":    {sqlReadHandles, "bigint, text[], boolean[]"},
	"properties": {sqlReadProperties, "bigint, text[]"},
	"alternates": {sqlReadAlternates, "bigint, text[]"},
	"merge":      {sqlMergeLeaves, "bigint[], jsonb[], boolean[]"},
	"delete":     {sqlDeleteFragments, "bigint[]"},
	"leaves":     {updateLeaves, "bigint, text[], jsonb[]"},
}

// RegisterColumns has a connection's types encode arrays as the store's do.
func RegisterColumns(m *pgtype.Map) { registerColumns(m) }

// DeleteSyncedData removes the data of synced handles.
const DeleteSyncedData = sqlDeleteSyncedData

// Classify is how the store wraps a database error, before and after its first
// success.
func Classify(proven bool, err error) error {
	s := new(Store)
	s.proven.Store(proven)
	return s.classify("try", err)
}
