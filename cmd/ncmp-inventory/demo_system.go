package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"ncmp-inventory/cmd/internal/kafkaembed"
	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/store/pgembed"
)

const (
	demoPartitions = 12
	// demoMessageBytes lets the demo send registrations of some thousand handles.
	demoMessageBytes = 8 << 20
	// demoStop bounds how long what was started may take to stop.
	demoStop = 30 * time.Second
)

// demoSystem is all that a worker needs, and workers, in a directory of its own.
type demoSystem struct {
	dir      string
	logs     *os.File
	log      *zap.Logger
	postgres *pgembed.Server
	broker   *kafkaembed.Broker
	config   config.Config
	workers  []*worker
}

// startDemoSystem starts the servers and makes the workers, which do not run yet.
func startDemoSystem(ctx context.Context, workers int) (s *demoSystem, err error) {
	dir, err := os.MkdirTemp("", "ncmp-inventory-demo-")
	if err != nil {
		return nil, err
	}
	s = &demoSystem{dir: dir, config: config.Defaults()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(false))
			s = nil
		}
	}()
	// PostgreSQL does not run as root: its own user has to get to its data. This
	// lets it pass, not look; what is inside is closed.
	if err := os.Chmod(dir, 0o711); err != nil {
		return s, err
	}
	if s.logs, err = os.OpenFile(filepath.Join(dir, "workers.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return s, err
	}
	var reg = prometheus.NewRegistry()
	s.log, _ = newLogger(config.Log{Level: "info", Format: "json"}, s.logs, reg)

	g, start := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		s.postgres, err = pgembed.Start(start, pgembed.Config{
			DataDir: filepath.Join(dir, "postgres"), Port: pgembed.NoTCP,
			Params: map[string]string{"shared_buffers": "256MB", "max_wal_size": "2GB", "wal_compression": "on"},
		})
		return err
	})
	g.Go(func() (err error) {
		s.broker, err = kafkaembed.Start(start, kafkaembed.Config{
			DataDir: filepath.Join(dir, "kafka"), Topics: demoTopics(s.config.Kafka.Topics),
			MaxMessageBytes: demoMessageBytes, Log: s.log,
		})
		return err
	})
	if err := g.Wait(); err != nil {
		return s, err
	}
	s.config.Kafka.Brokers = s.broker.Addrs()
	s.config.Database.URL = config.SecretOf(s.postgres.URL("postgres"))
	s.config.HTTP.Address = ""
	for i := range workers {
		w, err := newWorker(s.config, s.log.With(zap.Int("worker", i+1)), prometheus.NewRegistry())
		if err != nil {
			return s, err
		}
		s.workers = append(s.workers, w)
	}
	return s, nil
}

func demoTopics(t config.Topics) map[string]int {
	topics := map[string]int{}
	for _, name := range append(t.Inputs(), t.LCMEvents, t.InventoryEvents, t.Outcomes, t.DeadLetters) {
		topics[name] = demoPartitions
	}
	return topics
}

// runWorkers runs them until ctx ends and they have drained.
func (s *demoSystem) runWorkers(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, w := range s.workers {
		g.Go(func() error {
			if err := w.Run(ctx); err != nil {
				return fmt.Errorf("worker %d: %w", i+1, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// awaitReady returns when every worker is.
func (s *demoSystem) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, w := range s.workers {
		for w.ready() != nil {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// close stops what was started, the last first, and removes the directory,
// unless it is needed to find out what went wrong.
func (s *demoSystem) close(keepLogs bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), demoStop)
	defer cancel()
	var errs []error
	if s.broker != nil {
		errs = append(errs, s.broker.Close())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop(ctx))
	}
	if s.logs != nil {
		errs = append(errs, s.logs.Close())
	}
	if keepLogs {
		errs = append(errs, fmt.Errorf("what the workers said is in %s", s.logs.Name()))
	} else {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// flags are what a command needs to reach the servers.
func (s *demoSystem) flags() string {
	dsn := s.postgres.URL("postgres")
	if u, err := url.Parse(dsn); err == nil {
		u.User = url.User(u.User.Username()) // a unix socket asks for no password
		dsn = u.String()
	}
	return fmt.Sprintf("--kafka.brokers %s --database.url '%s'", strings.Join(s.broker.Addrs(), ","), dsn)
}
