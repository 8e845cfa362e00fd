package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"ncmp-inventory/inventory"
)

// Config says where the database is and how to treat it. Zero values stand for
// the defaults given.
type Config struct {
	// URL is a libpq URL or DSN. With several hosts the one that takes writes
	// is used.
	URL string
	// Password, if set, is asked for the password of each new connection, so
	// that one that was replaced is picked up.
	Password func(context.Context) (string, error)
	// Instance names this worker. It is the owner that the worker claims
	// partitions as, and shows in the server's list of sessions.
	Instance string
	// MaxConnections bounds the pool; default 10. Each lane uses one, and
	// the publisher two.
	MaxConnections int
	// Migrate lets Open create or upgrade the worker's tables.
	Migrate bool
	// Model is the inventory's YANG module, stored when the registry is
	// created on an empty database.
	Model Model
	// Codec encodes the leaves of handles. Without it handles can be read
	// but Transact fails.
	Codec inventory.LeafCodec
	// RelayID is the configured transactional id of the publisher; "" lets
	// the database keep a generated one.
	RelayID string
	// StatementTimeout bounds one statement on the server; default 20s.
	StatementTimeout time.Duration
	// TransactionTimeout bounds a whole transaction from here; default 60s.
	// A transaction of one record, which cannot be split, gets five times
	// both.
	TransactionTimeout time.Duration
	// LockTimeout bounds the wait for a row held by another; default 5s.
	LockTimeout time.Duration
	// FrozenTimeout is how soon the server gives up on a client that stopped
	// in the middle of a transaction; default 5s.
	FrozenTimeout time.Duration
	// OnCommit, if set, is told after each commit that left messages to
	// publish. It must not block.
	OnCommit func(messages int)

	Logger     *zap.Logger
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = 10
	}
	set(&c.StatementTimeout, 20*time.Second)
	set(&c.TransactionTimeout, 60*time.Second)
	set(&c.LockTimeout, 5*time.Second)
	set(&c.FrozenTimeout, 5*time.Second)
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.URL == "":
		return errors.New("database.url is empty")
	case c.MaxConnections < 2:
		return fmt.Errorf("database.max-connections is %d, the least is 2", c.MaxConnections)
	case c.StatementTimeout < 0 || c.TransactionTimeout < 0 || c.LockTimeout < 0 || c.FrozenTimeout < 0:
		return errors.New("a database time-out is negative")
	case c.TransactionTimeout < c.StatementTimeout:
		return fmt.Errorf("the time-out of a transaction (%s) is below that of a statement (%s)", c.TransactionTimeout, c.StatementTimeout)
	}
	return nil
}

// Store is the inventory's database. It is safe for concurrent use.
type Store struct {
	cfg     Config
	pool    *pgxpool.Pool
	log     *zap.Logger
	metrics *metrics
	ids     idBlocks
	leaves  *leaves // nil without a codec

	anchor  int64 // the registry's anchor
	root    int64 // its root fragment
	network int64 // the dataspace with an anchor for each synced handle
	// synced says that such anchors exist: a removal then takes them along.
	synced bool
	// took says that CPS made the tables.
	took bool

	proven    atomic.Bool // a connection succeeded once: a refusal is an outage from then on
	unplanned atomic.Int64
	notify    notifier
	collation atomic.Pointer[bool] // see bytewise
}

// ErrNotMigrated means that the worker's tables are missing or too old.
var ErrNotMigrated = errors.New("the database is not migrated")

// Open connects, checks the server and its settings, and migrates if the
// configuration says so. Its error is an inventory.ErrTransient when the server
// cannot be reached; anything else needs a human.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, log: cfg.Logger, metrics: newMetrics(cfg.Registerer)}
	if cfg.Codec != nil {
		var err error
		if s.leaves, err = newLeaves(cfg.Codec); err != nil {
			return nil, err
		}
	}
	pc, err := s.poolConfig()
	if err != nil {
		return nil, err
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return nil, s.classify("connect", err)
	}
	s.ids.pool = s.pool
	if err := s.start(ctx); err != nil {
		s.pool.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) start(ctx context.Context) error {
	if err := s.Ping(ctx); err != nil {
		return err
	}
	s.proven.Store(true)
	if s.cfg.Migrate {
		return s.Migrate(ctx)
	}
	return s.load(ctx)
}

// Close ends all connections. It waits for those in use.
func (s *Store) Close() { s.pool.Close() }

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.classify("ping", s.pool.Ping(ctx))
}

// TookOver reports whether the tables are CPS's own: the database was NCMP's.
func (s *Store) TookOver() bool { return s.took }

// deadline bounds a read or a small write.
func (s *Store) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.cfg.StatementTimeout+s.cfg.LockTimeout)
}

const sqlRegistry = `
select a.id, n.id, coalesce(y.revision, ''), coalesce(s.name, ''),
       (select f.id from fragment f where f.anchor_id = a.id and f.xpath = '/dmi-registry'),
       exists (select from anchor h where h.dataspace_id = n.id),
       to_regclass('databasechangelog') is not null,
       (select greatest(reltuples, 0)::bigint from pg_class where oid = 'fragment'::regclass)
from anchor a
join dataspace d on d.id = a.dataspace_id and d.name = 'NCMP-Admin'
join dataspace n on n.name = 'NFP-Operational'
left join schema_set s on s.id = a.schema_set_id
left join lateral (
    select r.revision from schema_set_yang_resources l join yang_resource r on r.id = l.yang_resource_id
    where l.schema_set_id = s.id and r.module_name = 'dmi-registry' limit 1
) y on true
where a.name = 'ncmp-dmi-registry'`

// load finds the registry. It runs no DDL.
func (s *Store) load(ctx context.Context) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	pending, err := s.pending(ctx)
	if err != nil {
		return err
	}
	if len(pending) > 0 {
		return fmt.Errorf("%w: %d migration(s) are due, the first is %s", ErrNotMigrated, len(pending), pending[0].name)
	}
	var revision, schemaSet string
	var root *int64
	var rows int64
	err = s.pool.QueryRow(ctx, sqlRegistry).Scan(&s.anchor, &s.network, &revision, &schemaSet, &root, &s.synced, &s.took, &rows)
	if errors.Is(err, pgx.ErrNoRows) {
		return errors.New("the registry's anchor ncmp-dmi-registry is gone from the database")
	}
	if err != nil {
		return s.classify("find the registry", err)
	}
	if err := checkRevision(revision, schemaSet); err != nil {
		return err
	}
	if root == nil {
		return errors.New("the registry's root data node /dmi-registry is gone from the database")
	}
	s.root = *root
	if rows < plannedRows {
		s.unplanned.Store(plannedRows)
	}
	return nil
}

// plannedRows is how many rows of data nodes a table must hold before its
// statistics make for plans that last.
const plannedRows = 3000
