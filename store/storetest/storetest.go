//go:build unix

// Package storetest gives each test a database of its own on a real
// PostgreSQL. One private server serves a whole test process; a database is
// copied from a template that was migrated once.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { storetest.Main(m) }
package storetest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"ncmp-inventory/store"
	"ncmp-inventory/store/pgembed"
)

// urlVariable names a server to use instead of a private one. Its user must be
// allowed to create databases.
const urlVariable = "TEST_DATABASE_URL"

// settings make a throw-away server fast. They are no example for any other.
var settings = map[string]string{
	"fsync":                     "off",
	"synchronous_commit":        "on", // as in production: tests watch what COMMIT promises
	"full_page_writes":          "off",
	"max_connections":           "300",
	"shared_buffers":            "256MB",
	"max_wal_size":              "4GB",
	"jit":                       "off",
	"autovacuum_naptime":        "10s",
	"log_min_messages":          "fatal",
	"log_checkpoints":           "off",
	"track_activity_query_size": "4096",
}

// DB is a migrated database of one test.
type DB struct {
	// URL is how to connect as a superuser.
	URL    string
	server *pgembed.Server // nil for a server that other tests use as well
}

// shared is the server of this process, started at first need.
var shared struct {
	once   sync.Once
	err    error
	admin  string // URL of a database to create others from
	server *pgembed.Server
	dir    string
	names  atomic.Int64
	prefix string
}

// Main runs a package's tests, then stops the server and fails if a goroutine
// was left behind.
func Main(m *testing.M) {
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "storetest:", err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "storetest: a goroutine was left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Open gives the test a fresh, migrated database that goes when the test ends.
func Open(t testing.TB) *DB {
	t.Helper()
	shared.once.Do(startShared)
	require.NoError(t, shared.err)
	return create(t, "template "+template())
}

// OpenEmpty gives the test a database without any table.
func OpenEmpty(t testing.TB) *DB {
	t.Helper()
	shared.once.Do(startShared)
	require.NoError(t, shared.err)
	return create(t, "template template0")
}

// OpenAlone gives the test a migrated database on a server of its own, which
// it may stop, crash and start again.
func OpenAlone(t testing.TB, extra map[string]string) *DB {
	t.Helper()
	dir, err := openDir()
	require.NoError(t, err)
	params := map[string]string{}
	for _, m := range []map[string]string{settings, extra} {
		for k, v := range m {
			params[k] = v
		}
	}
	s, err := pgembed.Start(t.Context(), pgembed.Config{DataDir: filepath.Join(dir, "data"), Port: pgembed.NoTCP, Params: params})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.Stop(context.Background()))
		require.NoError(t, os.RemoveAll(dir))
	})
	require.NoError(t, migrate(t.Context(), s.URL("postgres")))
	return &DB{URL: s.URL("postgres"), server: s}
}

// Server is the server that OpenAlone started, to be stopped, crashed and
// started again by its test.
func (db *DB) Server() *pgembed.Server { return db.server }

// New opens a store on the database; change may alter its configuration. It is
// closed when the test ends.
func (db *DB) New(t testing.TB, change ...func(*store.Config)) *store.Store {
	t.Helper()
	cfg := store.Config{URL: db.URL, Instance: t.Name(), Model: model}
	for _, c := range change {
		c(&cfg)
	}
	s, err := store.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// Pool connects without a store. It is closed when the test ends.
func (db *DB) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), db.URL)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// Row is one row of the fragment table, without its id.
type Row struct {
	Anchor, XPath string
	Parent        string // its xpath, "" for a root
	Attributes    string // as jsonb prints it, which makes equal values equal
}

const allRows = `
select a.name, f.xpath, coalesce(p.xpath, ''), coalesce(f.attributes::text, '')
from fragment f join anchor a on a.id = f.anchor_id left join fragment p on p.id = f.parent_id
order by a.name collate "C", f.xpath collate "C"`

// Rows is every row of the fragment table, sorted by anchor and xpath.
func (db *DB) Rows(t testing.TB) []Row {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), allRows)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Row])
	require.NoError(t, err)
	return all
}

func startShared() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	shared.prefix = fmt.Sprintf("storetest_%d_%d", os.Getpid(), time.Now().UnixNano())
	if shared.admin = os.Getenv(urlVariable); shared.admin == "" {
		if shared.err = startPrivate(ctx); shared.err != nil {
			return
		}
	}
	if u, err := url.Parse(shared.admin); err != nil || u.Scheme == "" {
		shared.err = errors.New(urlVariable + " is no URL of the form postgres://…")
		return
	}
	if shared.err = admin(ctx, "create database "+template()+" template template0"); shared.err != nil {
		return
	}
	shared.err = migrate(ctx, withDatabase(shared.admin, template()))
}

func startPrivate(ctx context.Context) error {
	dir, err := openDir()
	if err != nil {
		return err
	}
	shared.dir = dir
	s, err := pgembed.Start(ctx, pgembed.Config{DataDir: filepath.Join(dir, "data"), Port: pgembed.NoTCP, Params: settings})
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	shared.server, shared.admin = s, s.URL("postgres")
	return nil
}

func stopShared() error {
	if shared.prefix == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if shared.server == nil {
		return admin(ctx, "drop database if exists "+template())
	}
	return errors.Join(shared.server.Stop(ctx), os.RemoveAll(shared.dir))
}

// openDir makes a directory that the server's user can enter.
func openDir() (string, error) {
	dir, err := os.MkdirTemp("", "storetest-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

func template() string { return shared.prefix + "_template" }

func create(t testing.TB, from string) *DB {
	name := fmt.Sprintf("%s_%d", shared.prefix, shared.names.Add(1))
	require.NoError(t, admin(t.Context(), "create database "+name+" "+from))
	t.Cleanup(func() {
		require.NoError(t, admin(context.Background(), "drop database "+name+" with (force)"))
	})
	return &DB{URL: withDatabase(shared.admin, name)}
}

func admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, shared.admin)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(ctx, sql)
	return err
}

func migrate(ctx context.Context, databaseURL string) error {
	s, err := store.Open(ctx, store.Config{URL: databaseURL, Migrate: true, Model: model})
	if err != nil {
		return err
	}
	s.Close()
	return nil
}

func withDatabase(databaseURL, name string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return databaseURL
	}
	u.Path = "/" + name
	return u.String()
}

// model stands in for the inventory's YANG module: the store keeps its text and
// does not read it.
var model = store.Model{
	Module:   "dmi-registry",
	Revision: "2026-01-28",
	Content: []byte(`module dmi-registry {
  yang-version 1.1;
  namespace "org:onap:cps:ncmp";
  prefix dmi-reg;
  revision "2026-01-28";
  container dmi-registry {
    list cm-handles {
      key "id";
      leaf id { type string; }
      container state { leaf cm-handle-state { type string; } }
    }
  }
}
`),
}
