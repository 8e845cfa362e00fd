package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

func TestConfigurationIsChecked(t *testing.T) {
	t.Parallel()
	for text, cfg := range map[string]store.Config{
		"database.url is empty":    {},
		"database.max-connections": {URL: "postgres://h/d", MaxConnections: 1},
		"negative":                 {URL: "postgres://h/d", LockTimeout: -1},
		"below that of":            {URL: "postgres://h/d", StatementTimeout: 2, TransactionTimeout: 1},
		"neither":                  {URL: "postgres://u:hush@h:x/d"},
	} {
		_, err := store.Open(t.Context(), cfg)
		require.ErrorContains(t, err, text)
		require.NotContains(t, err.Error(), "hush")
	}
}

func TestOfSeveralHostsTheOneThatAnswersIsUsed(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	c, err := pgx.ParseConfig(db.URL)
	require.NoError(t, err)
	dsn := fmt.Sprintf("host=127.0.0.1,%s port=1,%d user=%s password='%s' dbname=%s sslmode=disable", c.Host, c.Port, c.User, c.Password, c.Database)
	s := open(t, dsn)
	require.NoError(t, s.Ping(t.Context()))

	execute(t, db, `alter database `+c.Database+` set default_transaction_read_only = on`)
	_, err = store.Open(t.Context(), store.Config{URL: dsn})
	require.ErrorIs(t, err, inventory.ErrTransient, "a server that takes no writes is waited for, or another is found")
}

func TestServerThatStoppedTakingWritesIsLeft(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	s := db.New(t, withCodec)
	l := startLane(t, s, topic)
	l.create(t, handle("a", ""))
	pids := func() map[int]bool {
		rows, err := db.Pool(t).Query(t.Context(), `select pid from pg_stat_activity where datname = current_database() and application_name like 'ncmp-inventory%'`)
		require.NoError(t, err)
		list, err := pgx.CollectRows(rows, pgx.RowTo[int])
		require.NoError(t, err)
		set := map[int]bool{}
		for _, p := range list {
			set[p] = true
		}
		return set
	}
	before := pids()
	_, err := store.Pool(s).Exec(t.Context(), `set default_transaction_read_only = on`)
	require.NoError(t, err)
	_, err = s.Transact(t.Context(), l.batch(2), needOf([]string{"b"}), nil)
	require.ErrorIs(t, err, inventory.ErrTransient)
	l.create(t, handle("b", ""))
	for pid := range pids() {
		require.NotContains(t, before, pid, "the old sessions are gone")
	}
}

// TestSessionsKeepOnePlanOfEachStatement looks at lanes' and the publisher's.
func TestSessionsKeepOnePlanOfEachStatement(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t).New(t)
	require.Equal(t, map[string]string{"plan_cache_mode": "force_generic_plan"}, settingsOf(t, s, "plan_cache_mode"))
	var mode string
	require.NoError(t, store.OutboxPool(newOutbox(t, s)).QueryRow(t.Context(), `show plan_cache_mode`).Scan(&mode))
	require.Equal(t, "force_generic_plan", mode)
}

func TestPasswordIsAskedForWithEachConnection(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	asked := 0
	s := db.New(t, func(c *store.Config) {
		c.Password = func(context.Context) (string, error) {
			asked++
			return "any", nil
		}
	})
	require.NoError(t, s.Ping(t.Context()))
	require.Equal(t, 1, asked)

	broken := errors.New("the file is gone")
	_, err := store.Open(t.Context(), store.Config{URL: db.URL, Password: func(context.Context) (string, error) { return "", broken }})
	require.ErrorIs(t, err, broken)
}
