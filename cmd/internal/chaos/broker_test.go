package chaos

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// broker is a Kafka broker that can go away and come back. Workers reach it
// through the proxy, whose address it tells them; the harness goes around it.
type broker interface {
	name() string
	start(ctx context.Context) error
	// stop ends it; hard is without a word.
	stop(hard bool) error
	// addr is where it really listens.
	addr() string
}

// client is a client of the harness.
func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(w.kafka.addr()),
		kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, w.kafka.addr())
		}),
		kgo.AlwaysRetryEOF(), kgo.MetadataMinAge(100 * time.Millisecond), kgo.RetryTimeout(10 * time.Minute), kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}, opts...)...)
	require.NoError(w, err)
	w.Cleanup(c.Close)
	return c
}

// embedded is a broker inside the test.
type embedded struct {
	dir, told, real string
	cluster         *kfake.Cluster
}

func (b *embedded) name() string { return "embedded broker" }
func (b *embedded) addr() string { return b.real }

// toldListener says another address than its own.
type toldListener struct {
	net.Listener
	told *net.TCPAddr
}

func (l toldListener) Addr() net.Addr { return l.told }

func (b *embedded) start(context.Context) (err error) {
	told, err := net.ResolveTCPAddr("tcp", b.told)
	if err != nil {
		return err
	}
	b.cluster, err = kfake.NewCluster(
		kfake.NumBrokers(1), kfake.DataDir(b.dir), kfake.GroupMinSessionTimeout(time.Second),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) {
			address := b.real
			if address == "" {
				address = "127.0.0.1:0"
			}
			l, err := net.Listen(network, address)
			if err != nil {
				return nil, err
			}
			if b.real == "" { // others read it from now on
				b.real = l.Addr().String()
			}
			return toldListener{l, told}, nil
		}),
	)
	return err
}

func (b *embedded) stop(bool) error {
	b.cluster.Close()
	return nil
}

// apache is Apache Kafka in a process of its own.
type apache struct {
	libs, dir, told, real string
	cmd                   *exec.Cmd
}

func (b *apache) name() string { return "Apache Kafka" }
func (b *apache) addr() string { return b.real }

// newApache formats the storage of a broker.
func newApache(t *testing.T, dir, told string) *apache {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../../.ci/kafka.sh", "libs").Output()
	require.NoError(t, err)
	b := &apache{libs: strings.TrimSpace(string(out)), dir: dir, told: told, real: freeAddress(t)}
	config := fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%[3]s
listeners=PLAINTEXT://%[1]s,CONTROLLER://%[3]s
advertised.listeners=PLAINTEXT://%[2]s
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=%[4]s/data
auto.create.topics.enable=false
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
`, b.real, b.told, freeAddress(t), dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "server.properties"), []byte(config), 0o600))
	format := b.java(t.Context(), "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", filepath.Join(dir, "server.properties"))
	text, err := format.CombinedOutput()
	require.NoError(t, err, "%s", text)
	return b
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func (b *apache) java(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "java", append([]string{"-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", b.libs + "/*"}, args...)...)
}

func (b *apache) start(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(b.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	b.cmd = b.java(context.Background(), "kafka.Kafka", filepath.Join(b.dir, "server.properties"))
	b.cmd.Stdout, b.cmd.Stderr = log, log
	if err := b.cmd.Start(); err != nil {
		return err
	}
	for {
		c, err := net.Dial("tcp", b.real)
		if err == nil {
			return c.Close()
		}
		if err := b.cmd.Process.Signal(syscall.Signal(0)); err != nil {
			return fmt.Errorf("Apache Kafka ended: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (b *apache) stop(hard bool) error {
	signal := os.Signal(syscall.SIGTERM)
	if hard {
		signal = os.Kill
	}
	if err := b.cmd.Process.Signal(signal); err != nil {
		return err
	}
	_ = b.cmd.Wait() // it says that it was asked to
	return nil
}
