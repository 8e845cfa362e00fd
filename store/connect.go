package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"
)

// The server versions this was tested on.
const (
	oldestServer = 140000
	newestServer = 189999
)

// applicationName is how sessions of a worker show on the server. Claim finds
// the session of a frozen owner by it.
func applicationName(instance string) string {
	name := "ncmp-inventory " + instance
	return name[:min(len(name), 63)] // NAMEDATALEN - 1
}

func (s *Store) poolConfig() (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig(s.cfg.URL)
	if err != nil {
		// The parser's text quotes the URL, password and all.
		return nil, errors.New("database.url is neither a PostgreSQL URL nor a DSN")
	}
	pc.MaxConns = int32(s.cfg.MaxConnections)
	c := pc.ConnConfig
	// Results are read in the forms that this mode gives them.
	c.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	if _, ok := c.RuntimeParams["search_path"]; !ok {
		c.RuntimeParams["search_path"] = "public"
	}
	c.RuntimeParams["application_name"] = applicationName(s.cfg.Instance)
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 10 * time.Second
	}
	for _, f := range c.Fallbacks {
		if f.Host != c.Host || f.Port != c.Port {
			// Several hosts: only the primary is of use.
			c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
			break
		}
	}
	dial := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if network == noCancel {
			return nil, errors.New("no cancel request while a COMMIT is under way")
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &link{Conn: conn}, nil
	}
	c.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		if n.Code == "01000" && n.Routine == "SyncRepWaitForLSN" {
			c.CustomData()[unsynced] = true
		}
	}
	if s.cfg.Password != nil {
		pc.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
			var err error
			c.Password, err = s.cfg.Password(ctx)
			return err
		}
	}
	pc.AfterConnect = s.prepareSession
	return pc, nil
}

const sqlSession = `
select pg_backend_pid(), current_setting('server_version_num')::int, current_setting('synchronous_commit'), current_setting('fsync')`

// sqlSetting skips a setting that an older server lacks.
const sqlSetting = `select set_config(name, $2, false) from pg_settings where name = $1`

// prepareSession checks a new connection and bounds what a frozen or vanished
// worker can hold up: without these the rows it locked stay locked for hours.
func (s *Store) prepareSession(ctx context.Context, conn *pgx.Conn) error {
	registerColumns(conn.TypeMap())
	var pid, version int
	var syncCommit, fsync string
	if err := conn.QueryRow(ctx, sqlSession, pgx.QueryExecModeExec).Scan(&pid, &version, &syncCommit, &fsync); err != nil {
		return err
	}
	if version < oldestServer || version > newestServer {
		return fmt.Errorf("PostgreSQL %d is not supported: 14 to 18 are", version/10000)
	}
	if uint32(pid) != conn.PgConn().PID() {
		return errors.New("a connection pooler stands between the worker and PostgreSQL: sessions that move between transactions cannot be used, connect to the server itself")
	}
	s.metrics.unsafe.Set(0)
	if fsync == "off" {
		s.metrics.unsafe.Set(1)
	}
	if fsync == "off" && !s.proven.Load() {
		s.log.Warn("the server runs with fsync = off: what it commits does not survive a crash of its machine")
	}
	settings := [][2]string{
		// One plan per statement. Left to choose, the server compares costs that
		// hang on a sample of parent_id, and in every other database it plans the
		// cascade of a removal anew for each row: half of the removal's time. Our
		// own statements' plans do not depend on their parameters.
		{"plan_cache_mode", "force_generic_plan"},
		{"statement_timeout", millis(s.cfg.StatementTimeout)},
		{"lock_timeout", millis(s.cfg.LockTimeout)},
		{"idle_in_transaction_session_timeout", millis(s.cfg.FrozenTimeout)},
		{"tcp_user_timeout", millis(s.cfg.FrozenTimeout)},
		{"client_connection_check_interval", millis(s.cfg.FrozenTimeout)},
	}
	if syncCommit == "off" {
		settings = append(settings, [2]string{"synchronous_commit", "on"})
	}
	for _, set := range settings {
		_, err := conn.Exec(ctx, sqlSetting, pgx.QueryExecModeExec, set[0], set[1])
		var pe *pgconn.PgError
		if errors.As(err, &pe) && pe.Code == "22023" {
			// The server's platform cannot watch its clients.
			s.log.Warn("the server refuses a session setting", zap.String("setting", set[0]))
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// unsynced marks a connection whose COMMIT was acknowledged although its wait
// for a synchronous standby had been cut short.
const unsynced = "unsynced"

// noCancel is the network name that a link shows while it must not be
// cancelled.
const noCancel = "no-cancel"

// link is a network connection that can forbid cancel requests. pgx sends one
// whenever it gives a connection up; a COMMIT that waits for a synchronous
// standby would take it as "never mind the standby" and answer success.
type link struct {
	net.Conn
	committing atomic.Bool
}

// RemoteAddr is where pgx would send a cancel request.
func (l *link) RemoteAddr() net.Addr {
	if l.committing.Load() {
		return nowhere{}
	}
	return l.Conn.RemoteAddr()
}

type nowhere struct{}

func (nowhere) Network() string { return noCancel }
func (nowhere) String() string  { return "" }

// linkOf finds the network connection below TLS.
func linkOf(conn *pgx.Conn) *link {
	c := conn.PgConn().Conn()
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	l, _ := c.(*link)
	return l
}
