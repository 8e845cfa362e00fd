//go:build unix

package pgembed_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"ncmp-inventory/store/pgembed"
)

// orphanVariable makes the test binary a parent that starts a server on the
// directory it names, says so, and waits to be killed.
const orphanVariable = "PGEMBED_TEST_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(orphanVariable); dir != "" {
		parent(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func parent(dir string) {
	s, err := pgembed.Start(context.Background(), pgembed.Config{DataDir: dir, Port: pgembed.NoTCP})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready", s.PID())
	select {}
}

// openDir is a directory that the server can enter whoever runs the test.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o711))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o711))
	return filepath.Join(dir, "data")
}

func start(t *testing.T, cfg pgembed.Config) *pgembed.Server {
	t.Helper()
	s, err := pgembed.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	return s
}

func query(t *testing.T, s *pgembed.Server, sql string) (got string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&got))
	return got
}

func TestDataSurvivesStopCrashAndRestart(t *testing.T) {
	t.Parallel()
	cfg := pgembed.Config{DataDir: openDir(t), Port: pgembed.NoTCP, Params: map[string]string{"application_name": "kept"}}
	s := start(t, cfg)
	require.Equal(t, "kept", query(t, s, `show application_name`))
	require.Equal(t, "1", query(t, s, `with t as (select 1 n) select n::text from t`))
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `create table kept as select 'here' as v`)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))

	before := s.PID()
	require.NoError(t, s.Restart(t.Context(), pgembed.Immediate))
	require.NotEqual(t, before, s.PID())
	require.Equal(t, "here", query(t, s, `select v from kept`))

	require.NoError(t, s.Halt(t.Context(), pgembed.Fast))
	require.Zero(t, s.PID())
	_, err = pgx.Connect(t.Context(), s.URL("postgres"))
	require.Error(t, err)
	require.NoError(t, s.Restart(t.Context(), pgembed.Fast))
	require.Equal(t, "here", query(t, s, `select v from kept`))

	require.NoError(t, s.Stop(t.Context()))
	again := start(t, cfg)
	require.Equal(t, "here", query(t, again, `select v from kept`))
}

func TestTCPPortAsksForThePassword(t *testing.T) {
	t.Parallel()
	s := start(t, pgembed.Config{DataDir: openDir(t)})
	require.Equal(t, "127.0.0.1", query(t, s, `select host(inet_server_addr())`))

	cfg, err := pgx.ParseConfig(s.URL("postgres"))
	require.NoError(t, err)
	cfg.Password = "wrong"
	_, err = pgx.ConnectConfig(t.Context(), cfg)
	require.ErrorContains(t, err, "28P01")
}

func TestLongDataDirectoryGetsItsSocketElsewhere(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(openDir(t), strings.Repeat("d", 120))
	s := start(t, pgembed.Config{DataDir: dir, Port: pgembed.NoTCP})
	require.Equal(t, dir, query(t, s, `show data_directory`))
}

func TestOtherMajorVersionIsRefusedAndUntouched(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	version := filepath.Join(dir, "PG_VERSION")
	require.NoError(t, os.WriteFile(version, []byte("11\n"), 0o644))
	binDir := filepath.Join(t.TempDir(), "bin")
	require.NoError(t, os.MkdirAll(binDir, 0o755))
	for name, body := range map[string]string{"initdb": "exit 1", "postgres": "echo 'postgres (PostgreSQL) 15.4'"} {
		require.NoError(t, os.WriteFile(filepath.Join(binDir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	}
	_, err := pgembed.Start(t.Context(), pgembed.Config{DataDir: dir, BinDir: binDir})
	require.ErrorContains(t, err, "is of PostgreSQL 11, the programs in "+binDir+" are of 15")
	kept, err := os.ReadFile(version)
	require.NoError(t, err)
	require.Equal(t, "11\n", string(kept))
}

func TestDirectoryOfSomethingElseIsRefusedAndUntouched(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "thesis"), []byte("x"), 0o644))
	_, err := pgembed.Start(t.Context(), pgembed.Config{DataDir: dir})
	require.ErrorContains(t, err, "holds files but no PostgreSQL data")
	require.FileExists(t, filepath.Join(dir, "thesis"))
}

func TestBadSettingFailsWithTheServersWords(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	_, err := pgembed.Start(t.Context(), pgembed.Config{DataDir: openDir(t), Params: map[string]string{"shared_buffers": "many"}, Log: &log})
	require.ErrorContains(t, err, `invalid value for parameter "shared_buffers"`)
	require.Contains(t, log.String(), "shared_buffers")
}

func TestLeftoverPidFileIsNotTakenForReadiness(t *testing.T) {
	t.Parallel()
	cfg := pgembed.Config{DataDir: openDir(t), Port: pgembed.NoTCP}
	s := start(t, cfg)
	pidFile := filepath.Join(cfg.DataDir, "postmaster.pid")
	left, err := os.ReadFile(pidFile)
	require.NoError(t, err)
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, os.WriteFile(pidFile, left, 0o600))
	require.NoError(t, os.Chmod(pidFile, 0o644))
	again := start(t, cfg)
	require.Equal(t, "1", query(t, again, `select '1'`))
}

func TestSecondServerOnOneDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	cfg := pgembed.Config{DataDir: openDir(t), Port: pgembed.NoTCP}
	s := start(t, cfg)
	_, err := pgembed.Start(t.Context(), cfg)
	require.ErrorContains(t, err, "postmaster.pid")
	require.Equal(t, "1", query(t, s, `select '1'`))
}
