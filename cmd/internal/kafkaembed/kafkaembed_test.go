package kafkaembed_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"ncmp-inventory/cmd/internal/kafkaembed"
)

// heldDir makes the test binary hold a data directory until it is killed.
const heldDir = "KAFKAEMBED_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(heldDir); dir != "" {
		if _, err := kafkaembed.Start(context.Background(), kafkaembed.Config{DataDir: dir}); err != nil {
			os.Stdout.WriteString(err.Error())
			os.Exit(1)
		}
		os.Stdout.WriteString("held")
		select {}
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, c kafkaembed.Config) *kafkaembed.Broker {
	t.Helper()
	b, err := kafkaembed.Start(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func port(t *testing.T, b *kafkaembed.Broker) int {
	t.Helper()
	_, text, err := net.SplitHostPort(b.Addrs()[0])
	require.NoError(t, err)
	p, err := strconv.Atoi(text)
	require.NoError(t, err)
	return p
}

func client(t *testing.T, b *kafkaembed.Broker) *kafka.Client {
	t.Helper()
	tr := &kafka.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &kafka.Client{Addr: kafka.TCP(b.Addrs()...), Transport: tr, Timeout: 10 * time.Second}
}

func produce(t *testing.T, c *kafka.Client, topic string, value []byte) *kafka.ProduceResponse {
	t.Helper()
	r, err := c.Produce(t.Context(), &kafka.ProduceRequest{
		Topic: topic, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes(value)}),
	})
	require.NoError(t, err)
	return r
}

func end(t *testing.T, c *kafka.Client, topic string) int64 {
	t.Helper()
	r, err := c.ListOffsets(t.Context(), &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(0)}},
	})
	require.NoError(t, err)
	require.NoError(t, r.Topics[topic][0].Error)
	return r.Topics[topic][0].LastOffset
}

func TestARestartKeepsTheLog(t *testing.T) {
	t.Parallel()
	config := kafkaembed.Config{DataDir: t.TempDir(), Topics: map[string]int{"in": 3}}
	b := start(t, config)
	require.NoError(t, produce(t, client(t, b), "in", []byte("kept")).Error)
	id := b.Cluster().TopicInfo("in").TopicID
	config.Ports = []int{port(t, b)}
	require.NoError(t, b.Close())

	config.Topics["added"] = 2
	again := start(t, config)
	require.Equal(t, b.Addrs(), again.Addrs(), "clients find the broker where it was")
	require.Equal(t, id, again.Cluster().TopicInfo("in").TopicID, "a topic that exists is left as it is")
	require.EqualValues(t, 1, end(t, client(t, again), "in"))
	require.Len(t, again.Cluster().PartitionInfos("added"), 2)
}

func TestADirectoryServesOneBroker(t *testing.T) {
	t.Parallel()
	config := kafkaembed.Config{DataDir: t.TempDir()}
	b := start(t, config)
	_, err := kafkaembed.Start(t.Context(), config)
	require.ErrorIs(t, err, kafkaembed.ErrInUse)
	require.NoError(t, b.Close())
	start(t, config)
}

func TestAKilledProcessGivesTheDirectoryBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), heldDir+"="+dir)
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	said := make([]byte, len("held"))
	_, err = out.Read(said)
	require.NoError(t, err)
	require.Equal(t, "held", string(said))

	_, err = kafkaembed.Start(t.Context(), kafkaembed.Config{DataDir: dir})
	require.ErrorIs(t, err, kafkaembed.ErrInUse)
	require.NoError(t, holder.Process.Kill())
	require.Error(t, holder.Wait(), "it was killed")
	start(t, kafkaembed.Config{DataDir: dir})
}

func TestTopicsTakeTheConfiguredSizes(t *testing.T) {
	t.Parallel()
	b := start(t, kafkaembed.Config{
		DataDir: t.TempDir(), Topics: map[string]int{"in": 1}, MaxMessageBytes: 2000, Retention: time.Hour,
	})
	c := client(t, b)
	r, err := c.DescribeConfigs(t.Context(), &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: "in"}},
	})
	require.NoError(t, err)
	got := map[string]string{}
	for _, e := range r.Resources[0].ConfigEntries {
		got[e.ConfigName] = e.ConfigValue
	}
	require.Equal(t, "2000", got["max.message.bytes"])
	require.Equal(t, "3600000", got["retention.ms"])

	require.NoError(t, produce(t, c, "in", make([]byte, 1000)).Error)
	require.ErrorIs(t, produce(t, c, "in", make([]byte, 3000)).Error, kafka.MessageSizeTooLarge)
}

func TestOldRecordsAreRemoved(t *testing.T) {
	t.Parallel()
	b := start(t, kafkaembed.Config{
		DataDir: t.TempDir(), Topics: map[string]int{"in": 1}, Retention: time.Millisecond,
	})
	require.NoError(t, produce(t, client(t, b), "in", []byte("old")).Error)
	require.Eventually(t, func() bool {
		b.Cluster().ApplyRetention()
		return b.Cluster().PartitionInfo("in", 0).LogStartOffset == 1
	}, 10*time.Second, 5*time.Millisecond)
}

func TestEachPortIsABroker(t *testing.T) {
	t.Parallel()
	free := start(t, kafkaembed.Config{DataDir: t.TempDir()})
	taken := port(t, free)
	_, err := kafkaembed.Start(t.Context(), kafkaembed.Config{DataDir: t.TempDir(), Ports: []int{taken}})
	require.ErrorContains(t, err, "address already in use")

	three := start(t, kafkaembed.Config{DataDir: t.TempDir(), Ports: []int{0, 0, 0}})
	require.Len(t, three.Addrs(), 3)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for want, c := range map[string]kafkaembed.Config{
		"no data directory":       {},
		"max message bytes -1":    {DataDir: dir, MaxMessageBytes: -1},
		"retention -1s":           {DataDir: dir, Retention: -time.Second},
		`topic "in" with 0`:       {DataDir: dir, Topics: map[string]int{"in": 0}},
		`topic "" with 1`:         {DataDir: dir, Topics: map[string]int{"": 1}},
		"start embedded broker: ": {DataDir: dir + "/file/below"},
	} {
		if strings.HasPrefix(want, "start") {
			require.NoError(t, os.WriteFile(dir+"/file", nil, 0o600))
		}
		_, err := kafkaembed.Start(t.Context(), c)
		require.ErrorContains(t, err, want)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := kafkaembed.Start(ended, kafkaembed.Config{DataDir: dir})
	require.ErrorIs(t, err, context.Canceled)
}
