package config

import (
	"math"
	"strings"
	"time"
)

// Key is one setting.
type Key struct {
	Name    string
	Type    string
	Default string // as text; "" is none
	Doc     string
	Secret  bool
	// File marks the variant of a secret that names a file holding it.
	File bool

	set  func(*Config, string) error
	show func(*Config) any
}

// Env is the key's environment variable.
func (k Key) Env() string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(k.Name))
}

const (
	envPrefix  = "NCMP_INVENTORY_"
	fileSuffix = "-file"
	unlimited  = math.MaxInt64
)

func key[T any](name, def string, k kind[T], at func(*Config) *T, doc string) Key {
	return Key{
		Name: name, Type: k.name, Default: def, Doc: doc,
		set: func(c *Config, text string) error {
			v, err := k.parse(text)
			if err != nil {
				return err
			}
			*at(c) = v
			return nil
		},
		show: func(c *Config) any { return k.show(*at(c)) },
	}
}

// secret is a key and its -file variant.
func secret(name string, k kind[Secret], at func(*Config) *Secret, doc string) []Key {
	plain := key(name, "", k, at, doc)
	plain.Secret = true
	file := Key{
		Name: name + fileSuffix, Type: "file", Doc: "file that holds `" + name + "`; read again whenever it is used", File: true,
		set: func(c *Config, path string) error {
			s := SecretIn(path)
			v, err := s.Reveal()
			if err != nil {
				return err
			}
			parsed, err := k.parse(v)
			if err != nil {
				return err
			}
			s.show = parsed.show
			*at(c) = s
			return nil
		},
		show: func(c *Config) any { return at(c).file },
	}
	return []Key{plain, file}
}

// Keys is every key there is, in the order in which people look for them.
var Keys = func() []Key {
	var all []Key
	add := func(k ...Key) { all = append(all, k...) }

	add(key("kafka.brokers", "", brokersKind, func(c *Config) *[]string { return &c.Kafka.Brokers },
		"brokers to start from, host:port"))
	add(key("kafka.group", "ncmp-inventory", textKind, func(c *Config) *string { return &c.Kafka.Group },
		"consumer group; it shares out the work. Positions belong to the database, on which one group works at a time"))
	add(key("kafka.instance-id", "", textKind, func(c *Config) *string { return &c.Kafka.InstanceID },
		"static membership: a worker that comes back under the same id within the session timeout gets its partitions back without a rebalance"))
	add(key("kafka.session-timeout", "10s", durationKind(time.Second, time.Hour), func(c *Config) *time.Duration { return &c.Kafka.SessionTimeout },
		"how long a silent worker keeps its partitions"))
	add(key("kafka.heartbeat-interval", "500ms", durationKind(50*time.Millisecond, time.Minute), func(c *Config) *time.Duration { return &c.Kafka.HeartbeatInterval },
		"how soon a worker learns of a rebalance; at most a third of the session timeout"))
	add(key("kafka.start", "earliest", choiceKind("earliest", "latest"), func(c *Config) *string { return &c.Kafka.Start },
		"where a partition without a stored position begins; a partition added to a known topic begins at earliest"))
	add(key("kafka.on-gap", "halt", choiceKind("halt", "earliest"), func(c *Config) *string { return &c.Kafka.OnGap },
		"what to do when records are gone that were never read: halt the partition, or go on at the earliest there is"))
	add(key("kafka.relay-id", "", textKind, func(c *Config) *string { return &c.Kafka.RelayID },
		"transactional id that fences the publisher; generated once and stored in the database unless given"))

	add(key("kafka.tls.enabled", "off", boolKind, func(c *Config) *bool { return &c.Kafka.TLS.Enabled },
		"encrypt connections to the brokers"))
	add(key("kafka.tls.ca-file", "", textKind, func(c *Config) *string { return &c.Kafka.TLS.CAFile },
		"PEM file with the authorities to trust instead of the system's; read at start"))
	add(key("kafka.tls.cert-file", "", textKind, func(c *Config) *string { return &c.Kafka.TLS.CertFile },
		"PEM file with the client certificate; read again for each connection"))
	add(key("kafka.tls.key-file", "", textKind, func(c *Config) *string { return &c.Kafka.TLS.KeyFile },
		"PEM file with the client certificate's key; read again for each connection"))
	add(key("kafka.tls.server-name", "", textKind, func(c *Config) *string { return &c.Kafka.TLS.ServerName },
		"name to expect in the brokers' certificates instead of the address"))
	add(key("kafka.tls.insecure", "off", boolKind, func(c *Config) *bool { return &c.Kafka.TLS.Insecure },
		"do not verify the brokers' certificates; for trials only"))
	add(key("kafka.sasl.mechanism", "off", choiceKind("off", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"), func(c *Config) *string { return &c.Kafka.SASL.Mechanism },
		"how to authenticate to the brokers"))
	add(key("kafka.sasl.username", "", textKind, func(c *Config) *string { return &c.Kafka.SASL.Username },
		"user for PLAIN and SCRAM"))
	add(secret("kafka.sasl.password", secretKind, func(c *Config) *Secret { return &c.Kafka.SASL.Password },
		"password for PLAIN and SCRAM")...)
	add(key("kafka.sasl.oauth.token-endpoint", "", endpointKind, func(c *Config) *string { return &c.Kafka.SASL.OAuth.TokenEndpoint },
		"where OAUTHBEARER tokens are fetched with the client-credentials grant"))
	add(key("kafka.sasl.oauth.client-id", "", textKind, func(c *Config) *string { return &c.Kafka.SASL.OAuth.ClientID },
		"client id for the token endpoint"))
	add(secret("kafka.sasl.oauth.client-secret", secretKind, func(c *Config) *Secret { return &c.Kafka.SASL.OAuth.ClientSecret },
		"client secret for the token endpoint")...)
	add(key("kafka.sasl.oauth.scope", "", textKind, func(c *Config) *string { return &c.Kafka.SASL.OAuth.Scope },
		"scope to ask the token endpoint for"))

	topic := func(name, def string, at func(*Topics) *string, doc string) {
		add(key("kafka.topics."+name, def, topicKind, func(c *Config) *string { return at(&c.Kafka.Topics) }, doc))
	}
	topics := func(name, def string, at func(*Topics) *[]string, doc string) {
		add(key("kafka.topics."+name, def, topicsKind, func(c *Config) *[]string { return at(&c.Kafka.Topics) }, doc))
	}
	topics("registrations", "ncmp-inventory-registrations", func(t *Topics) *[]string { return &t.Registrations }, "input: registration events; the event's type decides, not its topic")
	topics("state-changes", "ncmp-inventory-state-changes", func(t *Topics) *[]string { return &t.StateChanges }, "input: state-change events")
	topics("heartbeats", "dmi-device-heartbeat", func(t *Topics) *[]string { return &t.Heartbeats }, "input: trust-level heartbeats of DMI plugins; empty reads none")
	topic("lcm-events", "ncmp-events", func(t *Topics) *string { return &t.LCMEvents }, "output: LCM events")
	topic("inventory-events", "ncmp-inventory-events", func(t *Topics) *string { return &t.InventoryEvents }, "output: attribute value changes (trust level)")
	topic("outcomes", "ncmp-inventory-outcomes", func(t *Topics) *string { return &t.Outcomes }, "output: what became of each input event")
	topic("dead-letters", "ncmp-inventory-dead-letters", func(t *Topics) *string { return &t.DeadLetters }, "output: records that cannot be applied; should take records larger than the input topics do")

	url := secret("database.url", dsnKind, func(c *Config) *Secret { return &c.Database.URL },
		"PostgreSQL as a libpq URL or DSN; several hosts are tried in turn for the one that takes writes")
	url[1].Doc = "file that holds `database.url`; its password is read again for each new connection"
	add(url...)
	add(secret("database.password", secretKind, func(c *Config) *Secret { return &c.Database.Password },
		"password to use instead of the one in the URL; asked for with each new connection")...)
	add(key("database.max-connections", "4", intKind(2, 1000), func(c *Config) *int { return &c.Database.MaxConnections },
		"connections for transactions: so many partitions are written side by side, two for each core of the database are enough; the publisher has up to four of its own"))
	add(key("database.migrate", "on", boolKind, func(c *Config) *bool { return &c.Database.Migrate },
		"create or upgrade the tables when the worker starts; off leaves that to the migrate command"))
	add(key("database.on-rewind", "halt", choiceKind("halt", "replay"), func(c *Config) *string { return &c.Database.OnRewind },
		"what to do when the database went back (restored backup, lost commits): halt, or apply the lost records again"))

	add(key("outbox.max-bytes", "256MiB", sizeKind(1<<20, unlimited), func(c *Config) *int64 { return &c.Outbox.MaxBytes },
		"how much may wait to be published; beyond it input pauses"))
	add(key("outbox.max-age", "15m", durationKind(time.Second, 30*day), func(c *Config) *time.Duration { return &c.Outbox.MaxAge },
		"how long the oldest message may wait to be published; beyond it input pauses"))

	add(key("batch.max-records", "2000", intKind(1, 100_000), func(c *Config) *int { return &c.Batch.MaxRecords },
		"records of one transaction"))
	add(key("batch.max-bytes", "256KiB", sizeKind(1<<10, 1<<30), func(c *Config) *int64 { return &c.Batch.MaxBytes },
		"bytes of one transaction; a larger record goes alone"))
	add(key("batch.linger", "0", durationKind(0, time.Minute), func(c *Config) *time.Duration { return &c.Batch.Linger },
		"how long a batch waits to fill; at 0 the next one gathers while a transaction runs"))

	add(key("limits.memory", "64MiB", sizeKind(1<<20, unlimited), func(c *Config) *int64 { return &c.Limits.Memory },
		"bytes of input in flight"))
	add(key("limits.record-bytes", "16MiB", sizeKind(1<<10, 1<<30), func(c *Config) *int64 { return &c.Limits.RecordBytes },
		"a larger record is a dead letter"))
	add(key("limits.handles-per-event", "100000", intKind(1, 10_000_000), func(c *Config) *int { return &c.Limits.HandlesPerEvent },
		"an event that names more handles is a dead letter"))
	add(key("dead-letters.halt-after", "1000", intKind(0, math.MaxInt32), func(c *Config) *int { return &c.DeadLetters.HaltAfter },
		"so many dead letters in a row halt a partition: then the producer or the topic is wrong; 0 never halts"))

	add(key("history.enabled", "on", boolKind, func(c *Config) *bool { return &c.History.Enabled },
		"keep what happened to each handle, for the history command; replays of dead letters are judged by it"))
	add(key("history.keep", "30d", durationKind(time.Minute, 3650*day), func(c *Config) *time.Duration { return &c.History.Keep },
		"how long an entry of the history is kept"))
	add(key("history.keep-events", "100", intKind(1, 1_000_000), func(c *Config) *int { return &c.History.KeepEvents },
		"how many entries of each handle are kept, the newest"))

	add(key("lcm.version", "v1", choiceKind("v1", "v2"), func(c *Config) *string { return &c.LCM.Version },
		"body of the LCM events"))
	add(key("lcm.events", "all", choiceKind("all", "ncmp"), func(c *Config) *string { return &c.LCM.Events },
		"all: every visible change; ncmp: what NCMP sends"))
	add(key("lcm.legacy-headers", "utf8", choiceKind("utf8", "java", "none"), func(c *Config) *string { return &c.LCM.LegacyHeaders },
		"NCMP's headers as text, as Java-serialized strings, or not at all"))
	add(key("outcomes", "failures", choiceKind("failures", "all", "off"), func(c *Config) *string { return &c.Outcomes },
		"which input events get an outcome event; an event's own extension outcome decides for itself"))

	add(key("http.address", ":8080", addressKind, func(c *Config) *string { return &c.HTTP.Address },
		"serves /metrics, /livez and /readyz; off serves nothing"))
	add(key("http.debug-address", "off", addressKind, func(c *Config) *string { return &c.HTTP.DebugAddress },
		"serves /debug/pprof and /log/level; keep it private"))
	add(key("trace.otlp-endpoint", "", endpointKind, func(c *Config) *string { return &c.Trace.OTLPEndpoint },
		"exports spans of sampled input events over OTLP/HTTP, for example to http://collector:4318; headers and certificates as OpenTelemetry's OTEL_EXPORTER_OTLP_ variables say; unset exports nothing"))
	add(key("drain-timeout", "25s", durationKind(time.Second, time.Hour), func(c *Config) *time.Duration { return &c.Drain },
		"how long a stopping worker may take to finish what it holds"))
	add(key("log.level", "info", choiceKind("debug", "info", "warn", "error"), func(c *Config) *string { return &c.Log.Level },
		"least level to log; read again from the file on SIGHUP"))
	add(key("log.format", "auto", choiceKind("auto", "json", "console"), func(c *Config) *string { return &c.Log.Format },
		"auto: console on a terminal, json elsewhere"))
	return all
}()
