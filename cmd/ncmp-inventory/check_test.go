package main

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"ncmp-inventory/store/storetest"
)

func TestConfigCheckSaysWhatIsWrongAndWhatToTry(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	db := storetest.Open(t)
	empty := storetest.OpenEmpty(t)
	broker := newBroker(t, kfake.SeedTopics(1, "ncmp-events"))
	for name, c := range map[string]struct {
		brokers, url string
		want         []string
	}{
		"nothing listens": {free.Addr().String(), "postgres://u:s3cr3t@" + free.Addr().String() + "/db", []string{
			"missing  brokers", "key:  kafka.brokers (from flag --kafka.brokers)", "try:  check that a broker listens there",
			"missing  database", "key:  database.url (from flag --database.url)",
		}},
		"missing topics": {broker.ListenAddrs()[0], db.URL, []string{
			"ok       topic ncmp-events", "missing  topic ncmp-inventory-registrations", "--create-topics", "ok       database", "ok       tables",
		}},
		"an empty database":   {broker.ListenAddrs()[0], empty.URL, []string{"the worker will see to it"}},
		"an unknown database": {broker.ListenAddrs()[0], strings.Replace(db.URL, "/storetest", "/nothing", 1), []string{"wrong    database", "does not exist"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runCommand(t, "", "config", "check", "--kafka.brokers", c.brokers, "--database.url", c.url)
			require.Equal(t, exitUsage, got.code, got.stderr)
			for _, want := range c.want {
				require.Contains(t, got.stdout+got.stderr, want)
			}
			require.NotContains(t, got.stdout+got.stderr, "s3cr3t")
			for line := range strings.Lines(got.stdout) {
				require.Regexp(t, `^(RESULT|ok|warning|missing|wrong) `, line)
			}
		})
	}
}

func TestAFindingIsOneLine(t *testing.T) {
	t.Parallel()
	f := &findings{}
	f.add(wrong, "database", "failed to connect to `db`:\n\thost: refused\n\thost: refused\n\n\tother: refused", "", "")
	require.Equal(t, "failed to connect to `db`: host: refused; other: refused", f.list[0].text)
}

func TestTheTopicsOwnLimitsAreRead(t *testing.T) {
	t.Parallel()
	s := newSystem(t, false)
	tr, err := newTransport(s.cfg.Kafka)
	require.NoError(t, err)
	defer tr.CloseIdleConnections()
	client := newClient(s.cfg.Kafka, tr)
	f := checkKafka(t.Context(), s.cfg.Kafka, client)
	require.Len(t, f.missing, 7)
	require.Equal(t, absent, f.worst())
	require.NoError(t, createTopics(t.Context(), s.cfg.Kafka, client, f.missing))
	require.NoError(t, createTopics(t.Context(), s.cfg.Kafka, client, f.missing), "another worker may be faster")
	f = checkKafka(t.Context(), s.cfg.Kafka, client)
	require.Empty(t, f.missing)
	require.Equal(t, good, f.worst(), "%+v", f.list)
	require.Positive(t, f.limits.lcm)
}
