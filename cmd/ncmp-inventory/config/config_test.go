package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"ncmp-inventory/cmd/ncmp-inventory/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestStrongerLayersWin(t *testing.T) {
	t.Parallel()
	file := write(t, "worker.yaml", "kafka:\n  group: from-file\n")
	env := []string{"NCMP_INVENTORY_KAFKA_GROUP=from-env", "HOME=/nowhere"}
	flag := map[string]string{"kafka.group": "from-flag"}
	for _, c := range []struct {
		name         string
		in           config.Input
		want, source string
	}{
		{"nothing", config.Input{}, "ncmp-inventory", "default"},
		{"file", config.Input{File: file}, "from-file", file + ":2"},
		{"file named by the environment", config.Input{Environ: []string{"NCMP_INVENTORY_CONFIG=" + file}}, "from-file", file + ":2"},
		{"environment over file", config.Input{File: file, Environ: env}, "from-env", "environment NCMP_INVENTORY_KAFKA_GROUP"},
		{"flag over all", config.Input{File: file, Environ: env, Flags: flag}, "from-flag", "flag --kafka.group"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := config.Load(c.in)
			require.NoError(t, err)
			require.Equal(t, c.want, got.Kafka.Group)
			require.Equal(t, c.source, got.Source("kafka.group"))
		})
	}
}

func TestFormsOfValues(t *testing.T) {
	t.Parallel()
	file := write(t, "worker.yaml", `
kafka.brokers: [kafka-1:9093, kafka-2]
kafka:
  topics: {registrations: "a, b", heartbeats: []}
  session-timeout: 1m
limits:
  memory: 1GiB
  handles-per-event: 1_000
outbox: {max-age: 2d, max-bytes: 10MB}
database:
  migrate: off
http.address: off
lcm:
`)
	got, err := config.Load(config.Input{File: file})
	require.NoError(t, err)
	require.Equal(t, []string{"kafka-1:9093", "kafka-2:9092"}, got.Kafka.Brokers)
	require.Equal(t, []string{"a", "b", "ncmp-inventory-state-changes"}, got.Kafka.Topics.Inputs())
	require.Equal(t, time.Minute, got.Kafka.SessionTimeout)
	require.EqualValues(t, 1<<30, got.Limits.Memory)
	require.Equal(t, 1000, got.Limits.HandlesPerEvent)
	require.Equal(t, 48*time.Hour, got.Outbox.MaxAge)
	require.EqualValues(t, 10_000_000, got.Outbox.MaxBytes)
	require.False(t, got.Database.Migrate)
	require.Empty(t, got.HTTP.Address)
}

func TestFaultsNameKeyAndPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, file string
		env        []string
		flags      map[string]string
		want       []string
	}{
		{name: "unknown key in the file", file: "kafka:\n  borkers: a\n", want: []string{"kafka.borkers: unknown key; the nearest known one is kafka.brokers", "worker.yaml:2"}},
		{name: "unknown section", file: "kafak: {group: a}\n", want: []string{"kafak.group", "kafka.group"}},
		{name: "unknown variable", env: []string{"NCMP_INVENTORY_DATABASE_ULR=x"}, want: []string{"NCMP_INVENTORY_DATABASE_ULR", "NCMP_INVENTORY_DATABASE_URL"}},
		{name: "all faults at once", env: []string{"NCMP_INVENTORY_BATCH_LINGER=5"}, file: "log: {level: loud}\n", want: []string{`batch.linger: "5": want a duration`, "environment NCMP_INVENTORY_BATCH_LINGER", "log.level", "debug, info, warn, error"}},
		{name: "a section as a key", file: "kafka: a\n", want: []string{"kafka: is a section"}},
		{name: "a map as a value", file: "kafka: {group: {a: b}}\n", want: []string{"kafka.group: want one value"}},
		{name: "given twice", file: "kafka: {group: a}\nkafka.group: b\n", want: []string{"kafka.group: given twice", "worker.yaml:1"}},
		{name: "not YAML", file: "a: [\n", want: []string{"worker.yaml", "not valid YAML line"}},
		{name: "a list as a file", file: "- a\n", want: []string{"must hold keys and values"}},
		{name: "bad size", flags: map[string]string{"limits.memory": "64 parsecs"}, want: []string{"limits.memory", "flag --limits.memory", "64MiB"}},
		{name: "negative size", flags: map[string]string{"limits.memory": "-1"}, want: []string{"limits.memory"}},
		{name: "bad number", flags: map[string]string{"database.max-connections": "1"}, want: []string{"want 2 to 1000"}},
		{name: "bad topic", flags: map[string]string{"kafka.topics.lcm-events": "http://dmi:8080"}, want: []string{"kafka.topics.lcm-events", "no Kafka topic name"}},
		{name: "bad broker", flags: map[string]string{"kafka.brokers": "http://a:1"}, want: []string{"host:port"}},
		{name: "output is input", flags: map[string]string{"kafka.topics.lcm-events": "dmi-device-heartbeat"}, want: []string{"kafka.topics.lcm-events", "is an input topic too"}},
		{name: "two outputs in one topic", flags: map[string]string{"kafka.topics.outcomes": "ncmp-events"}, want: []string{"kafka.topics.outcomes", "kafka.topics.lcm-events too"}},
		{name: "heartbeat too slow", flags: map[string]string{"kafka.heartbeat-interval": "4s"}, want: []string{"more than a third"}},
		{name: "SASL without password", flags: map[string]string{"kafka.sasl.mechanism": "plain", "kafka.sasl.username": "u"}, want: []string{"kafka.sasl.password"}},
		{name: "TLS half on", flags: map[string]string{"kafka.tls.ca-file": "/ca.pem"}, want: []string{"kafka.tls.enabled", "switch it on"}},
		{name: "record over memory", flags: map[string]string{"limits.record-bytes": "1GiB"}, want: []string{"more than limits.memory (64MiB)"}},
		{name: "missing file", flags: map[string]string{"database.url-file": "/nowhere/url"}, want: []string{"database.url-file", "/nowhere/url"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := config.Input{Environ: c.env, Flags: c.flags}
			if c.file != "" {
				in.File = write(t, "worker.yaml", c.file)
			}
			_, err := config.Load(in)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestKubernetesServiceVariablesArePassedOver(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.Input{Environ: []string{
		"NCMP_INVENTORY_SERVICE_HOST=10.0.0.1", "NCMP_INVENTORY_SERVICE_PORT_HTTP=8080",
		"NCMP_INVENTORY_PORT=tcp://10.0.0.1:8080", "NCMP_INVENTORY_PORT_8080_TCP_ADDR=10.0.0.1",
	}})
	require.NoError(t, err)
}

func TestTopicNamesFollowKafkasRule(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"a": true, "ncmp.events__v1-": true, strings.Repeat("x", 249): true,
		".": false, "..": false, "": false, strings.Repeat("x", 250): false, "a b": false, "é": false,
	} {
		_, err := config.Load(config.Input{Flags: map[string]string{"kafka.topics.lcm-events": name}})
		require.Equal(t, good, err == nil, "%q: %v", name, err)
	}
}

const password = "s3cr3t"

func TestSecretsNeverShow(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://u:" + password + "@h1:5432,h2:5433/db?sslmode=disable",
		"postgres://h/db?user=u&password=" + password,
		"host=h user=u password=" + password + " dbname=db",
		"host=h password='" + password + " \\' x' user=u",
	} {
		got, err := config.Load(config.Input{Flags: map[string]string{
			"database.url": dsn, "kafka.sasl.password": password, "kafka.sasl.username": "u", "kafka.sasl.mechanism": "PLAIN",
		}})
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, got.WriteYAML(&out))
		require.NoError(t, got.WriteJSON(&out))
		fmt.Fprintf(&out, "%v %+v %#v %s %q %x %d", got, got, got, got.Database.URL, got.Database.URL, got.Database.URL, got.Kafka.SASL.Password)
		b, err := json.Marshal(got)
		require.NoError(t, err)
		out.Write(b)
		b, err = yaml.Marshal(got.Config)
		require.NoError(t, err)
		out.Write(b)
		require.NotContains(t, out.String(), password)
		require.NotContains(t, out.String(), fmt.Sprintf("%x", password))
		require.Contains(t, out.String(), "***")
		revealed, err := got.Database.URL.Reveal()
		require.NoError(t, err)
		require.Equal(t, dsn, revealed)
	}
}

func TestABadSecretIsNotQuoted(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.Input{Environ: []string{"NCMP_INVENTORY_DATABASE_URL=postgres://u:" + password + "@h:no/db"}})
	require.ErrorContains(t, err, "database.url")
	require.NotContains(t, err.Error(), password)
	_, err = config.Load(config.Input{File: write(t, "worker.yaml", "database: {url: "+password)})
	require.Error(t, err)
	require.NotContains(t, err.Error(), password)
}

func TestMaskedURLShowsWhereItGoes(t *testing.T) {
	t.Parallel()
	got, err := config.Load(config.Input{Flags: map[string]string{"database.url": "postgres://u:x@h1:5432,h2:5433/db?sslmode=disable"}})
	require.NoError(t, err)
	require.Equal(t, "postgres://u:***@h1:5432,h2:5433/db?sslmode=disable", got.Database.URL.String())
}

func TestSecretFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	file := write(t, "password", "one\n")
	got, err := config.Load(config.Input{
		Environ: []string{"NCMP_INVENTORY_KAFKA_SASL_PASSWORD=weaker"},
		Flags:   map[string]string{"kafka.sasl.password-file": file},
	})
	require.NoError(t, err)
	for _, want := range []string{"one", "two"} {
		require.NoError(t, os.WriteFile(file, []byte(want+"\n"), 0o600))
		v, err := got.Kafka.SASL.Password.Reveal()
		require.NoError(t, err)
		require.Equal(t, want, v)
	}
}

func TestASecretAndItsFileInOneLayerAreRefused(t *testing.T) {
	t.Parallel()
	_, err := config.Load(config.Input{Flags: map[string]string{
		"kafka.sasl.password": "a", "kafka.sasl.password-file": write(t, "password", "b"),
	}})
	require.ErrorContains(t, err, "give one of them")
}

func TestPrintedConfigurationReadsBack(t *testing.T) {
	t.Parallel()
	first, err := config.Load(config.Input{Flags: map[string]string{"kafka.brokers": "a:1,b:2", "outbox.max-age": "2d", "database.migrate": "off"}})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, first.WriteYAML(&out))
	second, err := config.Load(config.Input{File: write(t, "printed.yaml", out.String())})
	require.NoError(t, err)
	require.Equal(t, first.Config, second.Config)
	require.Contains(t, out.String(), "brokers: ['a:1', 'b:2'] # flag --kafka.brokers")
	require.Contains(t, out.String(), "group: ncmp-inventory # default")
}

func TestEveryKeyIsDocumentedAndItsDefaultIsGood(t *testing.T) {
	t.Parallel()
	config.Defaults()
	var out bytes.Buffer
	require.NoError(t, config.WriteMarkdown(&out))
	envs := map[string]string{}
	for _, k := range config.Keys {
		require.Regexp(t, `^[a-z]+([.-][a-z]+)*$`, k.Name)
		require.NotEmpty(t, k.Doc, k.Name)
		require.Contains(t, out.String(), "| `"+k.Name+"` |")
		require.Empty(t, envs[k.Env()], "one variable for two keys")
		envs[k.Env()] = k.Name
	}
}

func TestRequireNamesAllWaysToSetAKey(t *testing.T) {
	t.Parallel()
	got, err := config.Load(config.Input{})
	require.NoError(t, err)
	err = got.Require("kafka.brokers")
	for _, want := range []string{"kafka.brokers", "--kafka.brokers", "NCMP_INVENTORY_KAFKA_BROKERS", "--config"} {
		require.ErrorContains(t, err, want)
	}
	got.Kafka.Brokers = []string{"a:1"}
	require.NoError(t, got.Require("kafka.brokers"))
}
