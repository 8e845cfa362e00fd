package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/cmd/internal/load"
	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/store/storetest"
)

const securityPage = "docs/security.md"

// shownBlock is a block of the page about security, by its language and name.
func shownBlock(t *testing.T, language, name string) string {
	t.Helper()
	m := regexp.MustCompile("(?s)```" + language + " " + name + "\n(.*?)```").FindStringSubmatch(readRepo(t, securityPage))
	require.NotNil(t, m, "%s has no block %s", securityPage, name)
	return m[1]
}

// roles are the three of the page in a database of a test, whose server has
// those of other tests beside them.
type roles struct {
	*system
	own string // suffix of their names
}

// newRoles runs the page's statements as a superuser.
func newRoles(t *testing.T, db *storetest.DB, blocks ...string) *roles {
	t.Helper()
	u, err := url.Parse(db.URL)
	require.NoError(t, err)
	r := &roles{own: "_" + u.Path[1:]}
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), db.URL)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		for _, drop := range []string{"owned by %s cascade", "role %s"} {
			for _, role := range []string{"ncmp_worker", "ncmp_reader", "ncmp_owner"} {
				_, err := conn.Exec(context.Background(), "drop "+fmt.Sprintf(drop, role+r.own))
				require.NoError(t, err)
			}
		}
	})
	name := regexp.MustCompile(`ncmp_(?:owner|worker|reader)`)
	for _, block := range blocks {
		sql := strings.ReplaceAll(shownBlock(t, "sql", block), "database ncmp ", "database "+u.Path[1:]+" ")
		execute(t, db, name.ReplaceAllString(sql, "${0}"+r.own))
	}
	r.system = newSystemOn(t, db, true)
	return r
}

// as is the database's URL for a role.
func (r *roles) as(t *testing.T, role string) string {
	t.Helper()
	return changed(t, r.db, func(u *url.URL) { u.User = url.UserPassword("ncmp_"+role+r.own, "unused") })
}

// runAs runs a command as a role.
func (r *roles) runAs(t *testing.T, role, stdin string, args ...string) result {
	t.Helper()
	return runCommand(t, stdin, append(args, "--kafka.brokers", strings.Join(r.cfg.Kafka.Brokers, ","), "--database.url", r.as(t, role))...)
}

// The roles of the page are enough for what it says they are for, and for no more.
func TestTheDocumentedRolesAreEnough(t *testing.T) {
	t.Parallel()
	t.Run("empty database", func(t *testing.T) {
		t.Parallel()
		newRoles(t, storetest.OpenEmpty(t), "roles").requireEnough(t)
	})
	t.Run("database of CPS", func(t *testing.T) {
		t.Parallel()
		db := storetest.OpenEmpty(t)
		cps, err := os.ReadFile("../../store/testdata/cps.sql")
		require.NoError(t, err)
		execute(t, db, string(cps))
		newRoles(t, db, "roles", "existing").requireEnough(t)
	})
}

func (r *roles) requireEnough(t *testing.T) {
	t.Helper()
	got := r.runAs(t, "worker", "", "migrate")
	require.Equal(t, exitUsage, got.code, "a worker does not make tables: %s", got.stderr)
	require.Contains(t, got.stderr, "permission denied")
	got = r.runAs(t, "owner", "", "migrate")
	require.Equal(t, exitDone, got.code, got.stderr)

	// The topic is ahead of the database, which was restored: sequences are raised.
	topics := r.cfg.Kafka.Topics
	r.write(t, topics.LCMEvents, kafka.Message{Value: []byte("{}"), Headers: []kafka.Header{{Key: "ce_sequence", Value: []byte("0000000000000001000")}}})
	r.cfg.Database.URL, r.cfg.Database.Migrate = config.SecretOf(r.as(t, "worker")), false
	stop := r.start(t)
	r.awaitReady(t)
	got = r.runAs(t, "worker", twoBodies, "register", "-", "--wait")
	require.Equal(t, exitWrong, got.code, got.stderr)
	got = r.runAs(t, "worker", "", "state", "lab-17", "--to", "READY", "--wait")
	require.Equal(t, exitDone, got.code, got.stderr)
	r.write(t, topics.Registrations[0], kafka.Message{Key: []byte("lab-19"), Value: []byte(`{"createdCmHandles":"lab-19"}`), Headers: []kafka.Header{
		{Key: "ce_specversion", Value: []byte("1.0")}, {Key: "ce_id", Value: []byte("x")}, {Key: "ce_source", Value: []byte("/dmi")},
		{Key: "ce_type", Value: []byte("org.onap.ncmp.inventory.registration.v1")}, {Key: "content-type", Value: []byte("application/json")},
	}})
	require.Eventually(t, func() bool {
		got = r.runAs(t, "reader", "", "dead-letters", "list")
		require.Equal(t, exitDone, got.code, got.stderr)
		return strings.Contains(got.stdout, "bad-shape")
	}, patience, 20*time.Millisecond)

	for _, role := range []string{"reader", "worker"} {
		for _, args := range [][]string{
			{"get", "lab-17", "--private"}, {"list"}, {"list", "--stuck", "10m"}, {"history", "lab-17"}, {"positions"}, {"verify"}, {"config", "check"},
		} {
			got := r.runAs(t, role, "", args...)
			require.Equal(t, exitDone, got.code, "%s: %s: %s%s", role, args, got.stdout, got.stderr)
		}
	}
	got = r.runAs(t, "worker", "", "dead-letters", "replay", "--reason", "bad-shape", "--force")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.NoError(t, stop())

	set := []string{"positions", "set", topics.Registrations[0], "0", "0", "--execute", "--force"}
	got = r.runAs(t, "reader", "", set...)
	require.NotEqual(t, exitDone, got.code)
	require.Contains(t, got.stderr, "permission denied")
	got = r.runAs(t, "worker", "", set...)
	require.Equal(t, exitDone, got.code, got.stderr)
}

func (s *system) write(t *testing.T, topic string, m kafka.Message) {
	t.Helper()
	w := load.Writer(s.cfg.Kafka.Brokers, topic)
	require.NoError(t, w.WriteMessages(t.Context(), m))
	require.NoError(t, load.Close(w))
}
