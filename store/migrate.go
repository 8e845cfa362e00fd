package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration is one numbered step. Steps only go forward, and each must leave
// the worker of the release before it able to go on.
type migration struct {
	version   int
	name, sql string
}

// fragmentsVersion is the step that is run only where CPS's tables are missing.
const fragmentsVersion = 2

func readMigrations() ([]migration, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	ms := make([]migration, 0, len(names))
	for _, path := range names {
		sql, err := fs.ReadFile(migrationFiles, path)
		if err != nil {
			return nil, err
		}
		number, name, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(path, "migrations/"), ".sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != len(ms)+1 {
			return nil, fmt.Errorf("migration %s is out of sequence", path)
		}
		ms = append(ms, migration{version, name, string(sql)})
	}
	return ms, nil
}

// sqlMigrated reads the catalog itself: to_regclass answers from the session's
// cache, which a wait for an advisory lock does not refresh.
const sqlMigrated = `
select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'ncmp_inventory' and c.relname = 'migration')`

// migrationLock is the advisory lock that lets one worker migrate at a time.
const migrationLock = 0x6e636d70_696e76

const (
	sqlVersion    = `select coalesce(max(version), 0) from ncmp_inventory.migration`
	sqlRecord     = `insert into ncmp_inventory.migration (version, name) values ($1, $2)`
	sqlApplied    = `select version, name, applied from ncmp_inventory.migration order by version`
	sqlTakeLock   = `select pg_advisory_xact_lock($1)`
	sqlNoTimeouts = `set local lock_timeout = 0; set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0`
)

// Migrate brings the worker's tables up to date. On an empty database it also
// creates CPS's tables and the registry; those of a CPS database stay as they
// are. Several workers may call it at once. When nothing is due it runs no DDL
// and needs no right to.
func (s *Store) Migrate(ctx context.Context) error {
	pending, err := s.pending(ctx)
	if err != nil {
		return err
	}
	for _, m := range pending {
		if err := s.apply(ctx, m); err != nil {
			return fmt.Errorf("migration %03d_%s: %w", m.version, m.name, err)
		}
	}
	return s.load(ctx)
}

// pending are the migrations that the database has not seen.
func (s *Store) pending(ctx context.Context) ([]migration, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	all, err := readMigrations()
	if err != nil {
		return nil, err
	}
	version, err := databaseVersion(ctx, s.pool)
	if err != nil {
		return nil, s.classify("read the schema's version", err)
	}
	if version > len(all) {
		s.log.Warn("the database was migrated by a newer release", zap.Int("version", version), zap.Int("known", len(all)))
		return nil, nil
	}
	return all[version:], nil
}

// querier is a pool, a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func databaseVersion(ctx context.Context, q querier) (version int, err error) {
	var migrated bool
	if err := q.QueryRow(ctx, sqlMigrated).Scan(&migrated); err != nil || !migrated {
		return 0, err
	}
	err = q.QueryRow(ctx, sqlVersion).Scan(&version)
	return version, err
}

// apply runs one migration in its own transaction, unless another worker was
// faster.
func (s *Store) apply(ctx context.Context, m migration) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlNoTimeouts); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlTakeLock, migrationLock); err != nil {
			return err
		}
		version, err := databaseVersion(ctx, tx)
		if err != nil || version >= m.version {
			return err
		}
		if m.version == fragmentsVersion {
			err = s.applyFragments(ctx, tx, m.sql)
		} else {
			_, err = tx.Exec(ctx, m.sql)
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, sqlRecord, m.version, m.name)
		return err
	})
	var layout *LayoutError
	if errors.As(err, &layout) {
		return layout
	}
	return s.classify("migrate", err)
}

// applyFragments creates CPS's tables where they are missing, checks them
// where they exist, and installs the registry where it is missing.
func (s *Store) applyFragments(ctx context.Context, tx pgx.Tx, sql string) error {
	found, err := checkLayout(ctx, tx)
	if err != nil {
		return err
	}
	if !found {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
		s.log.Info("created the data-node tables in their leaner layout; NCMP's own Liquibase would stop on them")
	} else {
		s.log.Info("found CPS's tables and left them as they are")
	}
	return s.installRegistry(ctx, tx)
}

// Applied is one migration that the database has seen.
type Applied struct {
	Version int
	Name    string
	At      time.Time
}

// Applied lists the migrations that the database has seen.
func (s *Store) Applied(ctx context.Context) ([]Applied, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, sqlApplied)
	if err != nil {
		return nil, s.classify("list migrations", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Applied])
	return list, s.classify("list migrations", err)
}
