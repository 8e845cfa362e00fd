package chaos

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"ncmp-inventory/cmd/internal/kafkaapache"
)

// broker is a Kafka broker that can go away and come back. Workers reach it
// through the proxy, whose address it tells them; the harness goes around it.
type broker interface {
	name() string
	start(ctx context.Context) error
	// stop ends it; hard is without a word.
	stop(hard bool) error
	// addr is where it really listens; of several, with commas between.
	addr() string
}

// client is a client of the harness.
func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	if w.brokers == nil { // the address that it tells is the proxy's
		opts = append(opts, kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, w.kafka.addr())
		}))
	}
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(w.kafka.addr(), ",")...),
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
type apache struct{ *kafkaapache.Broker }

func (b apache) name() string                    { return "Apache Kafka" }
func (b apache) addr() string                    { return b.Addr() }
func (b apache) start(ctx context.Context) error { return b.Start(ctx) }
func (b apache) stop(hard bool) error            { return b.Stop(hard) }

// newApache formats the storage of a broker.
func newApache(t *testing.T, dir, told string) apache {
	t.Helper()
	b, err := kafkaapache.Prepare(t.Context(), kafkaapache.Config{Dir: dir, Advertise: told})
	require.NoError(t, err)
	return apache{b}
}
