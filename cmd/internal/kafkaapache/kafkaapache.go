// Package kafkaapache runs Apache Kafka's broker in a process of its own, for
// tests that need one which they configure, stop and start themselves.
package kafkaapache

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Config says which broker to run. It listens at a free port of 127.0.0.1 in
// plain text, as whom ACLs call User:ANONYMOUS.
type Config struct {
	// Dir holds its data and its log. It exists, and is kept.
	Dir string
	// Advertise is the plain address that it tells clients; "" is its own.
	Advertise string
	// Listeners are further ones, each a name and its security protocol; each
	// gets a free port.
	Listeners map[string]string
	// Properties are lines added to its configuration.
	Properties []string
	// Join, if not nil, is the broker whose cluster this one joins, as Node (2 and
	// up); it has that one's controller and none of its own.
	Join *Broker
	Node int
	// JVM are flags of the Java machine.
	JVM []string
	// Format are arguments for the formatting of its storage.
	Format []string
}

// Broker is Apache Kafka, broker and controller in one unless it joins another. It is used by one
// goroutine at a time.
type Broker struct {
	cfg   Config
	libs  string
	addrs map[string]string // by listener; "" is the plain one
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has
}

// Prepare fetches Apache Kafka if need be and formats the storage of a broker.
func Prepare(ctx context.Context, cfg Config) (*Broker, error) {
	module, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return nil, fmt.Errorf("find the project: %w", err)
	}
	libs, err := exec.CommandContext(ctx, filepath.Join(filepath.Dir(string(module)), ".ci/kafka.sh"), "libs").Output()
	if err != nil {
		return nil, fmt.Errorf("fetch Apache Kafka: %w", err)
	}
	b := &Broker{cfg: cfg, libs: strings.TrimSpace(string(libs)), addrs: map[string]string{}}
	if err := b.configure(); err != nil {
		return nil, fmt.Errorf("configure Apache Kafka: %w", err)
	}
	args := slices.Concat([]string{"kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", b.properties()}, cfg.Format)
	if out, err := b.java(ctx, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("format storage: %w: %s", err, out)
	}
	return b, nil
}

func (b *Broker) properties() string { return filepath.Join(b.cfg.Dir, "server.properties") }

// listen gives each listener a free port.
func (b *Broker) listen(names []string) error {
	for _, name := range names {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close() //nolint:gocritic // all are held until each has its own
		b.addrs[name] = l.Addr().String()
	}
	return nil
}

func (b *Broker) configure() error {
	if err := b.listen(slices.AppendSeq([]string{"", "CONTROLLER"}, maps.Keys(b.cfg.Listeners))); err != nil {
		return err
	}
	told := b.cfg.Advertise
	if told == "" {
		told = b.addrs[""]
	}
	var listeners, protocols, own strings.Builder
	for name, protocol := range b.cfg.Listeners {
		fmt.Fprintf(&listeners, ",%s://%s", name, b.addrs[name])
		fmt.Fprintf(&protocols, ",%s:%s", name, protocol)
	}
	roles, node, controller := "broker,controller", 1, b.addrs["CONTROLLER"]
	if first := b.cfg.Join; first != nil {
		roles, node, controller = "broker", b.cfg.Node, first.addrs["CONTROLLER"]
	} else {
		fmt.Fprintf(&own, ",CONTROLLER://%s", controller)
	}
	text := fmt.Sprintf(`process.roles=%[8]s
node.id=%[9]d
controller.quorum.voters=1@%[2]s
listeners=PLAINTEXT://%[1]s%[5]s%[10]s
advertised.listeners=PLAINTEXT://%[3]s%[5]s
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT%[6]s
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
%[7]s
`, b.addrs[""], controller, told, b.cfg.Dir, &listeners, &protocols, strings.Join(b.cfg.Properties, "\n"), roles, node, &own)
	return os.WriteFile(b.properties(), []byte(text), 0o600)
}

func (b *Broker) java(ctx context.Context, args ...string) *exec.Cmd {
	flags := []string{"-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", b.libs + "/*"}
	return exec.CommandContext(ctx, "java", slices.Concat(flags, b.cfg.JVM, args)...)
}

// Addr is where it listens in plain text.
func (b *Broker) Addr() string { return b.addrs[""] }

// AddrOf is where one of the further listeners is.
func (b *Broker) AddrOf(listener string) string { return b.addrs[listener] }

// Start returns when it takes connections. It lives on after ctx.
func (b *Broker) Start(ctx context.Context) error {
	path := filepath.Join(b.cfg.Dir, "server.log")
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	b.cmd = b.java(context.WithoutCancel(ctx), "kafka.Kafka", b.properties())
	b.cmd.Stdout, b.cmd.Stderr = log, log
	if err := b.cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	b.ended = ended
	go func() {
		defer close(ended)
		_ = b.cmd.Wait() // whoever stopped it asked for its end
	}()
	for {
		c, err := net.Dial("tcp", b.Addr())
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ended:
			text, _ := os.ReadFile(path)
			return fmt.Errorf("the broker ended: %s", text[max(0, len(text)-2000):])
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Stop ends it; hard is without a word.
func (b *Broker) Stop(hard bool) error {
	signal := os.Signal(syscall.SIGTERM)
	if hard {
		signal = os.Kill
	}
	if err := b.cmd.Process.Signal(signal); err != nil {
		return err
	}
	<-b.ended
	return nil
}
