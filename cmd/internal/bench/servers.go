package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/segmentio/kafka-go"

	"ncmp-inventory/cmd/internal/kafkaembed"
	"ncmp-inventory/store/pgembed"
)

// settings of the embedded server: what a server of one's own would have on a
// machine of some GiB. Durability is as in production: fsync and
// synchronous_commit stay on.
var settings = map[string]string{
	"shared_buffers":     "1GB",
	"max_wal_size":       "8GB",
	"checkpoint_timeout": "15min",
	"wal_compression":    "on",
	"random_page_cost":   "1.1",
	"jit":                "off",
	"max_connections":    "200",
	"autovacuum_naptime": "10s",
}

const (
	// stopTimeout bounds how long what was started may take to stop.
	stopTimeout = 30 * time.Second
	// maxMessageBytes of the bench's topics lets one event register 20,000
	// handles.
	maxMessageBytes = 16 << 20
)

// servers are PostgreSQL and Kafka, embedded or the user's own.
type servers struct {
	cfg      *Config
	dir      string
	log      *os.File // what children said
	postgres *pgembed.Server
	admin    string // URL of a database to create others from
	kafka    *kafkaServer
	run      string // makes names of this run
	made     int
}

// kafkaServer is the broker in use.
type kafkaServer struct {
	process *process // nil if it is not ours
	brokers []string
	client  *kafka.Client
	close   func()
}

func startServers(ctx context.Context, cfg *Config) (s *servers, err error) {
	s = &servers{cfg: cfg, admin: cfg.Database, run: uuid.NewString()[:8]}
	if s.dir, err = os.MkdirTemp("", "ncmp-inventory-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
			s = nil
		}
	}()
	// PostgreSQL does not run as root: its own user has to get to its data.
	if err := os.Chmod(s.dir, 0o711); err != nil {
		return s, err
	}
	if s.log, err = os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return s, err
	}
	if s.admin != "" {
		return s, s.refuseInventory(ctx)
	}
	params := maps.Clone(settings)
	maps.Copy(params, cfg.PostgreSQL)
	s.postgres, err = pgembed.Start(ctx, pgembed.Config{DataDir: filepath.Join(s.dir, "postgres"), Port: pgembed.NoTCP, Params: params})
	if err == nil {
		s.admin = s.postgres.URL("postgres")
	}
	return s, err
}

// observed is the embedded PostgreSQL, under a name; nobody else's can be watched.
func (s *servers) observed(name string) []observed {
	if s.postgres == nil {
		return nil
	}
	return []observed{{name: name, pid: s.postgres.PID(), tree: true}}
}

// connect opens a connection to a database with the user's own password.
func (s *servers) connect(ctx context.Context, databaseURL string) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, errors.New("database.url is neither a PostgreSQL URL nor a DSN") // err quotes it
	}
	if s.cfg.Password != nil {
		if c.Password, err = s.cfg.Password(ctx); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, c)
}

// pool opens n connections to a database, with settings of their sessions.
func (s *servers) pool(ctx context.Context, databaseURL string, n int, settings map[string]string) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, errors.New("database.url is neither a PostgreSQL URL nor a DSN")
	}
	c.MaxConns = int32(n)
	maps.Copy(c.ConnConfig.RuntimeParams, settings)
	if s.cfg.Password != nil {
		c.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) (err error) {
			c.Password, err = s.cfg.Password(ctx)
			return err
		}
	}
	return pgxpool.NewWithConfig(ctx, c)
}

// ErrInventory means that the database is somebody's inventory.
var ErrInventory = errors.New("the database holds CM handles: a benchmark would slow down or fill the server of an inventory that is in use")

const (
	sqlHasFragments = `select to_regclass('fragment') is not null`
	sqlHasHandles   = `
select exists (select from fragment where xpath like '/dmi-registry/cm-handles[%' limit 1)`
)

// refuseInventory looks whether the database that the user named holds handles.
func (s *servers) refuseInventory(ctx context.Context) (err error) {
	conn, err := s.connect(ctx, s.admin)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	var found bool
	if err := conn.QueryRow(ctx, sqlHasFragments).Scan(&found); err != nil || !found {
		return err
	}
	if err := conn.QueryRow(ctx, sqlHasHandles).Scan(&found); err != nil {
		return fmt.Errorf("look for CM handles: %w", err)
	}
	if found {
		return ErrInventory
	}
	return nil
}

// createDatabase makes an empty database and returns its URL.
func (s *servers) createDatabase(ctx context.Context) (string, error) {
	s.made++
	name := fmt.Sprintf("ncmp_inventory_bench_%s_%d", s.run, s.made)
	if err := s.administer(ctx, "create database "+name+" template template0"); err != nil {
		var pe *pgconn.PgError
		if errors.As(err, &pe) && pe.Code == "42501" {
			return "", errors.New("the bench needs databases of its own: let the user of database.url create them (alter role … createdb)")
		}
		return "", fmt.Errorf("create a database: %w", err)
	}
	return withDatabase(s.admin, name)
}

func (s *servers) dropDatabase(ctx context.Context, databaseURL string) error {
	c, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return err
	}
	return s.administer(ctx, "drop database if exists "+pgx.Identifier{c.Database}.Sanitize()+" with (force)")
}

func (s *servers) administer(ctx context.Context, sql string) (err error) {
	conn, err := s.connect(ctx, s.admin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	_, err = conn.Exec(ctx, sql)
	return err
}

// withDatabase names another database of the same server.
func withDatabase(databaseURL, name string) (string, error) {
	if !strings.Contains(databaseURL, "://") {
		return databaseURL + " dbname=" + name, nil // the last one counts
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		return "", errors.New("database.url cannot be parsed") // err quotes it
	}
	u.Path = "/" + name
	return u.String(), nil
}

// broker starts the embedded broker at first need, or uses the user's.
func (s *servers) broker(ctx context.Context) (*kafkaServer, error) {
	if s.kafka != nil {
		return s.kafka, nil
	}
	k := &kafkaServer{brokers: s.cfg.Brokers, client: s.cfg.Kafka, close: func() {}}
	if k.client == nil {
		var err error
		if k.process, k.brokers, err = s.startBroker(ctx); err != nil {
			return nil, err
		}
		t := &kafka.Transport{MetadataTTL: time.Second}
		k.client = &kafka.Client{Addr: kafka.TCP(k.brokers...), Transport: t, Timeout: 30 * time.Second}
		k.close = t.CloseIdleConnections
	}
	s.kafka = k
	return k, nil
}

// startBroker starts this program once more, as a broker: see ServeBroker.
func (s *servers) startBroker(ctx context.Context) (*process, []string, error) {
	cmd := s.program("bench", "broker", filepath.Join(s.dir, "kafka"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	p, err := startProcess("broker", cmd, s.log, nil)
	if err != nil {
		return nil, nil, err
	}
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(out).ReadString('\n') // without one the process has ended
		line <- strings.TrimSpace(text)
	}()
	select {
	case address := <-line:
		if address == "" {
			<-p.done
			return nil, nil, p.failure()
		}
		return p, []string{address}, nil
	case <-ctx.Done():
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return nil, nil, errors.Join(context.Cause(ctx), p.stop(stop))
	}
}

// ServeBroker runs an embedded broker in dir until ctx ends. It tells its
// address as one line.
func ServeBroker(ctx context.Context, dir string, tell func(address string)) error {
	b, err := kafkaembed.Start(ctx, kafkaembed.Config{DataDir: dir})
	if err != nil {
		return err
	}
	tell(b.Addrs()[0])
	<-ctx.Done()
	return b.Close()
}

// program is this program with other arguments.
func (s *servers) program(args ...string) *exec.Cmd {
	all := slices.Concat(s.cfg.Program, args)
	return exec.Command(all[0], all[1:]...) //nolint:noctx // it gets a signal and time to end
}

// createTopics makes topics with so many partitions each.
func (k *kafkaServer) createTopics(ctx context.Context, partitions int, names ...string) error {
	req := &kafka.CreateTopicsRequest{}
	for _, name := range names {
		req.Topics = append(req.Topics, kafka.TopicConfig{
			Topic: name, NumPartitions: partitions, ReplicationFactor: -1,
			ConfigEntries: []kafka.ConfigEntry{{ConfigName: "max.message.bytes", ConfigValue: strconv.Itoa(maxMessageBytes)}},
		})
	}
	res, err := k.client.CreateTopics(ctx, req)
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	for name, err := range res.Errors {
		if err != nil {
			return fmt.Errorf("create topic %s: %w", name, err)
		}
	}
	return nil
}

func (k *kafkaServer) deleteTopics(ctx context.Context, names ...string) error {
	res, err := k.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: names})
	if err != nil {
		return fmt.Errorf("delete topics: %w", err)
	}
	for name, err := range res.Errors {
		if err != nil {
			return fmt.Errorf("delete topic %s: %w", name, err)
		}
	}
	return nil
}

// ends is the sum of the ends of a topic's partitions: how many records were
// ever written to it, if none was transactional.
func (k *kafkaServer) ends(ctx context.Context, topic string, partitions int) (int64, error) {
	ask := make([]kafka.OffsetRequest, partitions)
	for p := range ask {
		ask[p] = kafka.LastOffsetOf(p)
	}
	r, err := k.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: ask}})
	if err != nil {
		return 0, fmt.Errorf("read the ends of %s: %w", topic, err)
	}
	sum := int64(0)
	for _, p := range r.Topics[topic] {
		if p.Error != nil {
			return 0, fmt.Errorf("read the end of %s-%d: %w", topic, p.Partition, p.Error)
		}
		sum += p.LastOffset
	}
	return sum, nil
}

// close stops what was started, the last first, and removes its directory.
func (s *servers) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	var errs []error
	if k := s.kafka; k != nil {
		k.close()
		if k.process != nil {
			errs = append(errs, k.process.stop(ctx))
		}
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop(ctx))
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
