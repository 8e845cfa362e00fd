// Package kafkaembed runs a Kafka broker inside this process, for the demo, the
// benchmarks and the tests: a machine without Kafka can show the whole product.
//
// It is one broker that keeps its log on disk. It replicates nothing and dies
// with the process, so it is no place for data that somebody needs.
//
// # Non-obvious
//
//   - Two brokers would open one data directory without a word and ruin it.
//     Start therefore takes a lock on the directory, which the kernel gives back
//     even when the process is killed.
//   - The broker looks for old records only if a topic sets its own retention:
//     every topic that Start creates does.
package kafkaembed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/zap"
)

// Defaults of Config.
const (
	// DefaultMaxMessageBytes is Kafka's own default.
	DefaultMaxMessageBytes = 1_048_588
	// DefaultRetention is Kafka's own default.
	DefaultRetention = 7 * 24 * time.Hour
)

// segmentBytes bounds how much of a log is kept beyond its retention: only
// whole segments are removed.
const segmentBytes = 16 << 20

// cleanEvery is how often the broker looks for segments to remove.
const cleanEvery = time.Minute

// minSession lets tests and the demo see a dead worker's partitions move
// sooner than Kafka's six seconds.
const minSession = time.Second

// Config says where the broker keeps its log and what it serves.
type Config struct {
	// DataDir holds the log and everything else that survives a restart. It
	// is created if it is not there.
	DataDir string
	// Ports are those of 127.0.0.1 to listen on, one broker each. None is
	// one broker on a port that is free.
	Ports []int
	// Topics are created, with this many partitions, unless they exist.
	Topics map[string]int
	// MaxMessageBytes is max.message.bytes of the topics that Start
	// creates; 0 is DefaultMaxMessageBytes.
	MaxMessageBytes int
	// Retention is how long those topics keep records; 0 is DefaultRetention.
	Retention time.Duration
	// Log takes what the broker warns about; nil is nowhere.
	Log *zap.Logger
}

func (c *Config) validate() error {
	switch {
	case c.DataDir == "":
		return errors.New("kafkaembed: no data directory")
	case c.MaxMessageBytes < 0:
		return fmt.Errorf("kafkaembed: max message bytes %d is negative", c.MaxMessageBytes)
	case c.Retention < 0:
		return fmt.Errorf("kafkaembed: retention %s is negative", c.Retention)
	}
	for topic, partitions := range c.Topics {
		if topic == "" || partitions < 1 {
			return fmt.Errorf("kafkaembed: topic %q with %d partitions", topic, partitions)
		}
	}
	return nil
}

// Broker is a running broker. Its methods may be called from any goroutine.
type Broker struct {
	cluster *kfake.Cluster
	addrs   []string
	lock    *os.File
	closing sync.Once
	err     error
}

// Start opens the log in the data directory, creates the topics that are
// missing and serves until Close. It fails if another process, or another
// Broker of this one, has the directory open.
func Start(ctx context.Context, c Config) (*Broker, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start embedded broker: %w", context.Cause(ctx))
	}
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("start embedded broker: %w", err)
	}
	lock, err := lockFile(filepath.Join(c.DataDir, ".lock"))
	if err != nil {
		return nil, fmt.Errorf("start embedded broker in %s: %w", c.DataDir, err)
	}
	cluster, err := kfake.NewCluster(options(&c)...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start embedded broker in %s: %w", c.DataDir, err), lock.Close())
	}
	b := &Broker{cluster: cluster, addrs: cluster.ListenAddrs(), lock: lock}
	if err := b.createTopics(&c); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func options(c *Config) []kfake.Opt {
	log := c.Log
	if log == nil {
		log = zap.NewNop()
	}
	return []kfake.Opt{
		// The logs of brokers live below the lock's directory, so that the
		// broker never meets a file it does not know.
		kfake.DataDir(filepath.Join(c.DataDir, "log")),
		kfake.NumBrokers(max(1, len(c.Ports))),
		kfake.Ports(c.Ports...),
		kfake.GroupMinSessionTimeout(minSession),
		kfake.WithLogger(logger{log.Sugar()}),
		kfake.BrokerConfigs(map[string]string{
			"log.cleaner.backoff.ms": strconv.FormatInt(cleanEvery.Milliseconds(), 10),
		}),
	}
}

func (b *Broker) createTopics(c *Config) error {
	maxMessage := cmp.Or(c.MaxMessageBytes, DefaultMaxMessageBytes)
	configs := map[string]string{
		"retention.ms":      strconv.FormatInt(cmp.Or(c.Retention, DefaultRetention).Milliseconds(), 10),
		"retention.bytes":   "-1",
		"segment.bytes":     strconv.Itoa(max(segmentBytes, maxMessage)),
		"max.message.bytes": strconv.Itoa(maxMessage),
	}
	for _, topic := range slices.Sorted(maps.Keys(c.Topics)) {
		err := b.cluster.CreateTopic(topic, int32(c.Topics[topic]), configs)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create topic %s in embedded broker: %w", topic, err)
		}
	}
	return nil
}

// Addrs are the brokers' addresses, host:port.
func (b *Broker) Addrs() []string { return slices.Clone(b.addrs) }

// Cluster gives tests the means to move groups, inject faults and remove
// topics. Nobody but Close may close it.
func (b *Broker) Cluster() *kfake.Cluster { return b.cluster }

// Close stops serving, writes what is not yet on disk and gives the directory
// back. Later calls return what the first one did.
func (b *Broker) Close() error {
	b.closing.Do(func() {
		b.cluster.Close()
		if err := b.lock.Close(); err != nil {
			b.err = fmt.Errorf("close embedded broker: %w", err)
		}
	})
	return b.err
}

// logger hands on what deserves attention; the broker's information is about
// every request.
type logger struct{ log *zap.SugaredLogger }

func (l logger) Logf(level kfake.LogLevel, format string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		l.log.Errorf(format, args...)
	case kfake.LogLevelWarn:
		l.log.Debugf(format, args...) // a refused request: the client tells as well
	}
}
