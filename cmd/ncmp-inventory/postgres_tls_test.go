package main

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/store/pgembed"
	"ncmp-inventory/store/storetest"
)

// tlsDatabase is a PostgreSQL that takes connections over TLS only: user ncmp
// with a password, user guest with a client certificate.
type tlsDatabase struct {
	address          string
	authority, other *authority
	guest            pair
}

func newTLSDatabase(t *testing.T) *tlsDatabase {
	t.Helper()
	dir, err := os.MkdirTemp("", "tls-") //nolint:usetesting // PostgreSQL's user cannot enter t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o711))
	d := &tlsDatabase{authority: newAuthority(t, dir), other: newAuthority(t, dir)}
	d.guest = d.authority.issue(t, t.TempDir(), "guest")
	hba := filepath.Join(dir, "pg_hba.conf")
	require.NoError(t, os.WriteFile(hba, []byte(`hostssl all ncmp all scram-sha-256
hostssl all guest all cert
hostnossl all postgres 127.0.0.1/32 scram-sha-256
`), 0o644))
	data := filepath.Join(dir, "data")
	server, err := pgembed.Start(t.Context(), pgembed.Config{DataDir: data, Params: map[string]string{"hba_file": hba, "fsync": "off"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })

	// The server takes a key only if it is its own.
	owner, err := os.Stat(data)
	require.NoError(t, err)
	as := owner.Sys().(*syscall.Stat_t)
	p := d.authority.issue(t, dir, "postgres")
	for _, f := range []string{p.certFile, p.keyFile} {
		require.NoError(t, os.Chown(f, int(as.Uid), int(as.Gid)))
	}
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	for _, sql := range []string{
		`alter system set ssl_cert_file = '` + p.certFile + `'`, `alter system set ssl_key_file = '` + p.keyFile + `'`,
		`alter system set ssl_ca_file = '` + d.authority.file + `'`, `alter system set ssl = on`, `select pg_reload_conf()`,
		`create role ncmp superuser login password 'right'`, `create role guest superuser login`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	u, err := url.Parse(server.URL("postgres"))
	require.NoError(t, err)
	d.address = u.Host
	return d
}

// url is how user connects; more replaces parameters, "" leaves one out.
func (d *tlsDatabase) url(user *url.Userinfo, more map[string]string) string {
	q := url.Values{"sslmode": {"verify-full"}, "sslrootcert": {d.authority.file}}
	for k, v := range more {
		q.Set(k, v)
		if v == "" {
			q.Del(k)
		}
	}
	u := url.URL{Scheme: "postgres", User: user, Host: d.address, Path: "/postgres", RawQuery: q.Encode()}
	return u.String()
}

// A worker knows by its certificate which PostgreSQL it talks to, and can be
// known by its own; who cannot be trusted, or does not trust, is told why.
func TestPostgreSQLOverTLS(t *testing.T) {
	t.Parallel()
	d := newTLSDatabase(t)
	ncmp, guest := url.UserPassword("ncmp", "right"), url.User("guest")
	certificate := map[string]string{"sslcert": d.guest.certFile, "sslkey": d.guest.keyFile}

	broker := newBroker(t, seeded())
	for _, good := range []string{d.url(ncmp, nil), d.url(guest, certificate)} {
		s := &system{cfg: config.Defaults(), db: &storetest.DB{URL: good}, broker: broker}
		s.cfg.Kafka.Brokers, s.cfg.HTTP.Address, s.cfg.Database.URL = broker.ListenAddrs(), "127.0.0.1:0", config.SecretOf(good)
		stop := s.start(t)
		s.awaitReady(t)
		got := s.run(t, `{"createdCmHandles":[{"cmHandle":"a"}],"dmiPlugin":"http://dmi:1"}`, "register", "-", "--wait")
		require.Equal(t, exitDone, got.code, got.stderr)
		require.NoError(t, stop())
	}

	for name, c := range map[string]struct{ url, want string }{
		"another authority":     {d.url(ncmp, map[string]string{"sslrootcert": d.other.file}), "failed to verify certificate: x509: certificate signed by unknown authority"},
		"another name":          {strings.Replace(d.url(ncmp, nil), "127.0.0.1", "localhost", 1), "failed to verify certificate: x509: certificate is valid for postgres, not localhost"},
		"without TLS":           {d.url(ncmp, map[string]string{"sslmode": "disable", "sslrootcert": ""}), "no encryption (SQLSTATE 28000); check the user, and what the server's pg_hba.conf lets in from here"},
		"wrong password":        {d.url(url.UserPassword("ncmp", "s3cr3t"), nil), "(SQLSTATE 28P01); check user and password"},
		"no client certificate": {d.url(guest, nil), "requires a valid client certificate (SQLSTATE 28000)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := start{brokers: broker.ListenAddrs(), database: c.url}.run(t)
			require.Contains(t, text, c.want)
			require.Contains(t, text, "check ")
		})
	}
}
