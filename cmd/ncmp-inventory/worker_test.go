package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/store/storetest"
)

func TestAWorkerCreatesTopicsOnDemand(t *testing.T) {
	t.Parallel()
	s := newSystem(t, false)
	s.start(t, func(w *worker) { w.createTopics = true })
	s.awaitReady(t)
	got := s.run(t, `{"createdCmHandles":[{"cmHandle":"a"}],"dmiPlugin":"http://dmi:1"}`, "register", "-", "--wait")
	require.Equal(t, exitDone, got.code, got.stderr)
	tr, err := newTransport(s.cfg.Kafka)
	require.NoError(t, err)
	defer tr.CloseIdleConnections()
	md, err := clusterMetadata(t.Context(), newClient(s.cfg.Kafka, tr), nil)
	require.NoError(t, err)
	partitions := map[string]int{}
	for _, topic := range md.Topics {
		partitions[topic.Name] = len(topic.Partitions)
	}
	require.Equal(t, busyPartitions, partitions["ncmp-events"])
	require.Equal(t, quietPartitions, partitions["ncmp-inventory-dead-letters"])
}

func TestAWorkerThatCannotStartWaitsUnready(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	for name, c := range map[string]struct {
		change func(*system)
		want   string
	}{
		"no broker":    {func(s *system) { s.cfg.Kafka.Brokers = []string{free.Addr().String()} }, "kafka: brokers"},
		"no database":  {func(s *system) { s.cfg.Database.URL = config.SecretOf("postgres://u@" + free.Addr().String() + "/db") }, "postgresql: "},
		"no LCM topic": {func(s *system) { s.cfg.Kafka.Topics.LCMEvents = "elsewhere" }, "topic elsewhere: does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystem(t, true)
			c.change(s)
			stop := s.start(t)
			s.await(t, "/readyz", func(code int, body string) bool {
				return code == http.StatusServiceUnavailable && strings.Contains(body, c.want)
			})
			code, _ := s.body(t, "/livez")
			require.Equal(t, http.StatusOK, code)
			require.NoError(t, stop())
		})
	}
}

func TestWhatWaitingCannotMendEndsWithTwo(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	broker := newBroker(t, kfake.SeedTopics(1, "in"))
	good := map[string]string{"kafka.brokers": broker.ListenAddrs()[0], "database.url": db.URL, "http.address": "off",
		"kafka.topics.lcm-events": "in", "kafka.topics.registrations": "other"}
	for name, c := range map[string]struct {
		key, value, want string
	}{
		"output is input":                {"kafka.topics.registrations", "in", "is an input topic too"},
		"a database that is none":        {"database.url", strings.Replace(db.URL, "/storetest", "/nothing", 1), "database.url"},
		"a mechanism without a password": {"kafka.sasl.mechanism", "PLAIN", "kafka.sasl.username"},
		"no database given":              {"database.url", "", "--database.url"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"worker"}
			for key, value := range good {
				if key == c.key {
					value = c.value
				}
				args = append(args, "--"+key, value)
			}
			if _, ok := good[c.key]; !ok {
				args = append(args, "--"+c.key, c.value)
			}
			got := runCommand(t, "", args...)
			require.Equal(t, exitUsage, got.code, got.stderr)
			require.Contains(t, got.stderr, c.want)
		})
	}
}

func TestMissingRightsEndWithTwo(t *testing.T) {
	t.Parallel()
	topics := config.Defaults().Kafka.Topics
	all := append(topics.Inputs(), topics.LCMEvents, topics.InventoryEvents, topics.Outcomes, topics.DeadLetters)
	broker := newBroker(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, all...),
		kfake.User("PLAIN", "reader", "pw", kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "*", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationDescribe, Allow: true}))
	got := runCommand(t, "", "worker", "--kafka.brokers", broker.ListenAddrs()[0], "--database.url", "postgres://u@127.0.0.1:1/db", "--http.address", "off",
		"--kafka.sasl.mechanism", "PLAIN", "--kafka.sasl.username", "reader", "--kafka.sasl.password", "pw")
	require.Equal(t, exitUsage, got.code, got.stderr)
	for _, want := range []string{"topic ncmp-inventory-registrations: no right to READ", "topic ncmp-events: no right to WRITE", "group ncmp-inventory: no right to READ"} {
		require.Contains(t, got.stderr, want)
	}
}

func TestAnAddressThatIsTakenEndsTheWorker(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	s := newSystem(t, true)
	s.cfg.HTTP.Address = l.Addr().String()
	w, err := newWorker(s.cfg, zap.NewNop(), prometheus.NewRegistry())
	require.NoError(t, err)
	require.ErrorContains(t, w.Run(t.Context()), "address already in use")
}

func TestTwoWorkersShareOneProcess(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	s.start(t)
	s.cfg.Kafka.InstanceID = "second"
	stop := s.start(t)
	got := s.run(t, twoBodies, "register", "-", "--wait")
	require.Equal(t, exitWrong, got.code, got.stderr)
	require.NoError(t, stop())
	got = s.run(t, "", "state", "lab-17", "--to", "READY", "--wait")
	require.Equal(t, exitDone, got.code, got.stderr)
}

func TestAStoppedContextIsACleanEnd(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	w, err := newWorker(s.cfg, zap.NewNop(), prometheus.NewRegistry())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, w.Run(ctx))
}

func TestMigrateIsRepeatable(t *testing.T) {
	t.Parallel()
	db := storetest.OpenEmpty(t)
	got := runCommand(t, "", "migrate", "--database.url", db.URL, "--dry-run")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stdout, "due")
	for range 2 {
		got = runCommand(t, "", "migrate", "--database.url", db.URL)
		require.Equal(t, exitDone, got.code, got.stderr)
		require.Regexp(t, `(?m)^1 `, got.stdout)
	}
	got = runCommand(t, "", "migrate", "--database.url", "postgres://u:s3cr3t@127.0.0.1:1/db")
	require.Equal(t, exitFailed, got.code)
	require.NotContains(t, got.stderr, "s3cr3t")
}

func TestTuneTellsEachStepAndAppliesIt(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	// What a CPS database has: an index that no look-up needs.
	_, err := db.Pool(t).Exec(t.Context(), `create index fki_fragment_anchor_id_fk on fragment (anchor_id)`)
	require.NoError(t, err)
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"--dry-run"}, "anchor-index\n  brings: "},
		{[]string{"--dry-run"}, "anchor-index\n  brings: "}, // a dry run changes nothing
		{nil, "  done in "},
		{nil, "anchor-index: nothing to do"},
	} {
		got := runCommand(t, "", append([]string{"migrate", "--tune", "--database.url", db.URL}, step.args...)...)
		require.Equal(t, exitDone, got.code, got.stderr)
		require.Contains(t, got.stdout, step.want)
	}
}
