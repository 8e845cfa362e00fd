package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/store/storetest"
)

const troubleshooting = "docs/troubleshooting.md"

// start is a worker that cannot start, or not yet.
type start struct {
	brokers  []string
	database string
	environ  []string
	flags    []string
	file     string // content of the file of --config
	// waits says that the worker goes on trying; else it exits with 2.
	waits bool
	// hide replaces what differs from run to run: a text and what to show.
	hide []string
}

// starts are the ways in which a start goes wrong, by the name of their block in
// the document.
var starts = map[string]func(t *testing.T) start{
	"no-broker": func(t *testing.T) start {
		return start{brokers: []string{nobody(t)}, waits: true}
	},
	"broker-password": func(t *testing.T) start {
		b := newBroker(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "worker", "right"))
		// Apache Kafka answers; this broker would only close the connection.
		b.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
			b.KeepControl()
			res := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			res.ErrorCode, res.ErrorMessage = kerr.SaslAuthenticationFailed.Code, kmsg.StringPtr("Authentication failed: Invalid username or password")
			return res, nil, true
		})
		return start{brokers: b.ListenAddrs(), flags: []string{"--kafka.sasl.mechanism", "PLAIN", "--kafka.sasl.username", "worker", "--kafka.sasl.password", "s3cr3t"}}
	},
	"broker-closes": func(t *testing.T) start {
		return start{brokers: newBroker(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "worker", "right")).ListenAddrs(), waits: true}
	},
	"broker-mechanism": func(t *testing.T) start {
		b := newBroker(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "worker", "right"))
		return start{brokers: b.ListenAddrs(), flags: []string{
			"--kafka.sasl.mechanism", "OAUTHBEARER", "--kafka.sasl.oauth.token-endpoint", "http://127.0.0.1:1", "--kafka.sasl.oauth.client-id", "a", "--kafka.sasl.oauth.client-secret", "s3cr3t",
		}}
	},
	"broker-tls": func(t *testing.T) start {
		cert, _, _ := newCertificate(t)
		b := newBroker(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}))
		return start{brokers: b.ListenAddrs(), flags: []string{"--kafka.tls.enabled", "on"}}
	},
	"missing-topic": func(t *testing.T) start {
		return start{brokers: newBroker(t).ListenAddrs(), waits: true}
	},
	"topic-right": func(t *testing.T) start {
		allow := func(kind kmsg.ACLResourceType, name string, op kmsg.ACLOperation) kfake.ACL {
			return kfake.ACL{Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op, Allow: true}
		}
		var acls []kfake.ACL
		for _, name := range allTopics(config.Defaults().Kafka.Topics) {
			acls = append(acls, allow(kmsg.ACLResourceTypeTopic, name, kmsg.ACLOperationRead))
		}
		acls = append(acls, allow(kmsg.ACLResourceTypeGroup, "ncmp-inventory", kmsg.ACLOperationDescribe))
		b := newBroker(t, seeded(), kfake.EnableACLs(), kfake.EnableSASL(), kfake.User("PLAIN", "worker", "right", acls...))
		return start{brokers: b.ListenAddrs(), flags: []string{"--kafka.sasl.mechanism", "PLAIN", "--kafka.sasl.username", "worker", "--kafka.sasl.password", "right"}}
	},
	"no-database": func(t *testing.T) start {
		return start{database: "postgres://ncmp:s3cr3t@" + nobody(t) + "/ncmp?sslmode=disable", waits: true}
	},
	"database-password": func(t *testing.T) start {
		dir := t.TempDir()
		for _, d := range []string{dir, filepath.Dir(dir)} {
			require.NoError(t, os.Chmod(d, 0o755)) // the server may run as another user
		}
		hba := filepath.Join(dir, "pg_hba.conf")
		require.NoError(t, os.WriteFile(hba, []byte("local all ncmp scram-sha-256\nlocal all all trust\n"), 0o644))
		db := storetest.OpenAlone(t, map[string]string{"hba_file": hba})
		execute(t, db, `create role ncmp login password 'right'`)
		return start{database: changed(t, db, func(u *url.URL) { u.User = url.UserPassword("ncmp", "s3cr3t") })}
	},
	"no-such-database": func(t *testing.T) start {
		return start{database: changed(t, storetest.OpenEmpty(t), func(u *url.URL) { u.Path = "/ncmp" })}
	},
	"database-right": func(t *testing.T) start {
		db := storetest.OpenEmpty(t)
		pool := db.Pool(t)
		u, err := url.Parse(db.URL)
		require.NoError(t, err)
		role := "plain_" + u.Path[1:]
		_, err = pool.Exec(t.Context(), `create role `+role+` login password 'right'`)
		require.NoError(t, err)
		t.Cleanup(func() {
			_, err := pool.Exec(context.Background(), `drop owned by `+role+`; drop role `+role)
			require.NoError(t, err)
		})
		return start{
			database: changed(t, db, func(u *url.URL) { u.User = url.UserPassword(role, "right") }),
			hide:     []string{u.Path[1:], "ncmp"},
		}
	},
	"database-version": func(t *testing.T) start {
		// An older server is told from a newer one by this setting alone.
		db := storetest.OpenEmpty(t)
		execute(t, db, `create function public.current_setting(name text) returns text language sql as
			$$ select case name when 'server_version_num' then '130014' else pg_catalog.current_setting(name) end $$`)
		return start{database: changed(t, db, func(u *url.URL) {
			q := u.Query()
			q.Set("search_path", "public,pg_catalog")
			u.RawQuery = q.Encode()
		})}
	},
	"unknown-layout": func(t *testing.T) start {
		db := storetest.Open(t)
		execute(t, db, `drop schema ncmp_inventory cascade; alter table fragment add dataspace_id integer`)
		return start{database: db.URL}
	},
	"optimised-model": func(t *testing.T) start {
		db := storetest.Open(t)
		execute(t, db, `drop schema ncmp_inventory cascade; update yang_resource set revision = '2026-04-23'`)
		return start{database: db.URL}
	},
	"not-migrated": func(t *testing.T) start {
		return start{database: storetest.OpenEmpty(t).URL, flags: []string{"--database.migrate", "off"}}
	},
	"pgbouncer": func(t *testing.T) start {
		return start{database: pooled(t, storetest.Open(t))}
	},
	"unknown-variable": func(*testing.T) start {
		return start{environ: []string{"NCMP_INVENTORY_KAFKA_BROKER=kafka:9092"}}
	},
	"unknown-member": func(*testing.T) start {
		return start{file: "batch:\n  max-record: 500\n"}
	},
	"bad-value": func(*testing.T) start {
		return start{flags: []string{"--drain-timeout", "25"}}
	},
	"missing-key": func(*testing.T) start {
		return start{brokers: []string{""}}
	},
	"loop": func(*testing.T) start {
		return start{flags: []string{"--kafka.topics.outcomes", "ncmp-inventory-registrations"}}
	},
	"address": func(t *testing.T) start {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		return start{flags: []string{"--http.address", l.Addr().String()}}
	},
}

// seeded makes all topics.
func seeded() kfake.Opt { return kfake.SeedTopics(1, allTopics(config.Defaults().Kafka.Topics)...) }

// nobody is an address where nothing listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func changed(t *testing.T, db *storetest.DB, change func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(db.URL)
	require.NoError(t, err)
	change(u)
	return u.String()
}

func execute(t *testing.T, db *storetest.DB, sql string) {
	t.Helper()
	_, err := db.Pool(t).Exec(t.Context(), sql)
	require.NoError(t, err)
}

// pooled is a database behind what a pooler in transaction mode looks like: the
// process that a session is told is not the one that answers it.
func pooled(t *testing.T, db *storetest.DB) string {
	t.Helper()
	c, err := pgx.ParseConfig(db.URL)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			network, address := pgconn.NetworkAddress(c.Host, c.Port)
			server, err := net.Dial(network, address)
			if err != nil {
				client.Close()
				continue
			}
			wg.Go(func() {
				defer server.Close()
				_, _ = io.Copy(server, client)
			})
			wg.Go(func() {
				defer client.Close()
				_ = otherProcess(client, server)
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		wg.Wait()
	})
	u, err := url.Parse(db.URL)
	require.NoError(t, err)
	u.Host, u.RawQuery = l.Addr().String(), "sslmode=disable"
	return u.String()
}

// otherProcess passes a server's messages on, with another process id.
func otherProcess(client io.Writer, server io.Reader) error {
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(server, head); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return err
		}
		if head[0] == 'K' {
			body[3]++
		}
		if _, err := client.Write(append(slices.Clone(head), body...)); err != nil {
			return err
		}
	}
}

// run starts the worker and gives what it said: the line that tells why it waits,
// or its last words.
func (s start) run(t *testing.T) string {
	t.Helper()
	if s.brokers == nil {
		s.brokers = newBroker(t, seeded()).ListenAddrs()
	}
	if s.database == "" {
		s.database = "postgres://ncmp@" + nobody(t) + "/ncmp"
	}
	args := append([]string{"worker", "--log.format", "console", "--kafka.brokers", strings.Join(s.brokers, ","), "--database.url", s.database}, s.flags...)
	if !slices.Contains(s.flags, "--http.address") {
		args = append(args, "--http.address", "off")
	}
	if s.file != "" {
		path := filepath.Join(t.TempDir(), "worker.yaml")
		require.NoError(t, os.WriteFile(path, []byte(s.file), 0o600))
		args = append(args, "--config", path)
		s.hide = append(s.hide, path, "worker.yaml")
	}
	errs := &awaited{texts: []string{"waiting for ", " started "}, seen: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, args, s.environ, strings.NewReader(""), io.Discard, errs) }()
	code := -1
	select {
	case <-errs.seen:
		cancel()
		code = <-ended
	case code = <-ended:
	}
	said := errs.String()
	want := exitUsage
	if s.waits {
		want = exitDone
	}
	if slices.Contains(s.flags, "--http.address") {
		want = exitFailed
	}
	require.Equal(t, want, code, said)
	require.NotContains(t, said, "s3cr3t")
	var kept []string
	for line := range strings.Lines(said) {
		switch {
		case s.waits && strings.Contains(line, "waiting for "):
			kept = append(kept, line[len("15:04:05.000 "):])
		case !s.waits && strings.HasPrefix(line, "ncmp-inventory: "):
			kept = append(kept, line)
		}
	}
	text := strings.Join(kept, "")
	for i := 0; i < len(s.hide); i += 2 {
		if s.hide[i] != "" {
			text = strings.ReplaceAll(text, s.hide[i], s.hide[i+1])
		}
	}
	return s.named(text)
}

var (
	addresses = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	databases = regexp.MustCompile(`storetest_\d+_\d+_\d+`)
	sockets   = regexp.MustCompile(`/tmp/\S*?/(\.s\.PGSQL\.5432)`)
	dialled   = regexp.MustCompile(`127\.0\.0\.1:\d+->127\.0\.0\.1:\d+`)
)

// named replaces what a test's servers are called with what a reader's may be.
func (s start) named(text string) string {
	text = dialled.ReplaceAllString(text, "kafka:9092")
	for _, b := range s.brokers {
		if b != "" {
			text = strings.ReplaceAll(text, b, "kafka:9092")
		}
	}
	text = addresses.ReplaceAllString(text, "127.0.0.1:5432")
	text = sockets.ReplaceAllString(text, "/run/postgresql/$1")
	return databases.ReplaceAllString(text, "ncmp")
}

// awaited is an output that tells when one of some texts was written to it.
type awaited struct {
	texts []string
	seen  chan struct{}

	mu   sync.Mutex
	buf  bytes.Buffer
	once sync.Once
}

func (a *awaited) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, err := a.buf.Write(b)
	for _, text := range a.texts {
		if strings.Contains(a.buf.String(), text) {
			a.once.Do(func() { close(a.seen) })
		}
	}
	return n, err
}

func (a *awaited) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.buf.String()
}

// Every text that the document shows of a start that goes wrong is what the
// program says, and no way of going wrong is left out.
func TestTroubleshootingShowsWhatTheProgramSays(t *testing.T) {
	t.Parallel()
	said := map[string]string{}
	var mu sync.Mutex
	t.Run("starts", func(t *testing.T) {
		for name, prepare := range starts {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				text := prepare(t).run(t)
				require.NotEmpty(t, text)
				mu.Lock()
				defer mu.Unlock()
				said[name] = text
			})
		}
	})
	block := regexp.MustCompile("(?s)```text (\\S+)\n(.*?)```")
	text := readRepo(t, troubleshooting)
	shown := map[string]bool{}
	want := block.ReplaceAllStringFunc(text, func(b string) string {
		name := block.FindStringSubmatch(b)[1]
		require.Contains(t, said, name, "nothing is tried for this block")
		shown[name] = true
		return "```text " + name + "\n" + said[name] + "```"
	})
	for name := range said {
		require.True(t, shown[name], "%s is not shown: %s", name, said[name])
	}
	if *update {
		require.NoError(t, os.WriteFile("../../"+troubleshooting, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, text, "run `make docs`")
}
