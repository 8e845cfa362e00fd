//go:build kafka

package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
)

// javaLine is a record as the Java program read it.
type javaLine struct {
	Kind, Key       string
	Attributes      map[string]string // of the CloudEvent
	Data            any
	Default, Simple map[string]string // NCMP's headers, by the mapper that read them
}

// What Java's CloudEvents SDK writes, in both forms, is understood, and what the
// worker writes that SDK and Spring's header mappers read as it was meant.
func TestKafkaJavaClientsAndTheWorkerUnderstandEachOther(t *testing.T) {
	t.Parallel()
	libs := t.TempDir()
	fetch := exec.CommandContext(t.Context(), "mvn", "--batch-mode", "--quiet", "--file", "../../.ci/java/pom.xml",
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+libs)
	out, err := fetch.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for version, headers := range map[string]string{"v1": "java", "v2": "utf8"} {
		t.Run(version+" "+headers, func(t *testing.T) {
			t.Parallel()
			l := newKafkaLab(t, 1)
			w := l.startWorker("worker", "--lcm.version", version, "--lcm.legacy-headers", headers)
			w.awaitLine(`"publisher started"`)
			topics := l.config.Kafka.Topics
			var said, errs bytes.Buffer
			java := exec.CommandContext(t.Context(), "java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", libs+"/*", "../../.ci/java/Interop.java",
				strings.Join(l.brokers, ","), topics.Registrations[0], topics.StateChanges[0], topics.Heartbeats[0],
				topics.LCMEvents, topics.InventoryEvents, topics.Outcomes)
			java.Stdout, java.Stderr = &said, &errs
			require.NoError(t, java.Run(), "%s", &errs)
			w.terminate()

			written := map[string][]kafka.Message{
				"lcm": l.topic(topics.LCMEvents), "inventory": l.topic(topics.InventoryEvents), "outcome": l.topic(topics.Outcomes),
			}
			for text := range strings.Lines(said.String()) {
				var line javaLine
				require.NoError(t, json.Unmarshal([]byte(text), &line))
				require.NotEmpty(t, written[line.Kind], text)
				m := written[line.Kind][0]
				written[line.Kind] = written[line.Kind][1:]
				line.requireIs(t, &m)
				if line.Kind == "lcm" {
					line.requireLegacy(t, version, headers)
				}
			}
			for kind, left := range written {
				require.Empty(t, left, kind)
			}
			require.Equal(t, 2, strings.Count(said.String(), `"Ä4"`), "text survives both forms: %s", &said)
		})
	}
}

// requireIs compares what Java read with the record.
func (line *javaLine) requireIs(t *testing.T, m *kafka.Message) {
	t.Helper()
	require.Equal(t, string(m.Key), line.Key)
	want := map[string]string{}
	for _, h := range m.Headers {
		if name, ok := strings.CutPrefix(h.Key, "ce_"); ok {
			want[name] = string(h.Value)
		}
	}
	want["datacontenttype"] = headerOf(m, "content-type")
	if at := want["time"]; at != "" { // Java leaves zeros out
		meant, err := time.Parse(time.RFC3339Nano, at)
		require.NoError(t, err)
		read, err := time.Parse(time.RFC3339Nano, line.Attributes["time"])
		require.NoError(t, err)
		require.True(t, meant.Equal(read), "%s is %s", at, line.Attributes["time"])
		line.Attributes["time"] = at
	}
	require.Equal(t, want, line.Attributes)
	var data any
	require.NoError(t, json.Unmarshal(m.Value, &data))
	require.Equal(t, data, line.Data)
}

// requireLegacy compares NCMP's headers with the members of the body that have
// the same names.
func (line *javaLine) requireLegacy(t *testing.T, version, form string) {
	t.Helper()
	body := line.Data.(map[string]any)
	want := map[string]string{}
	for _, name := range []string{"eventId", "eventSchema", "eventCorrelationId", "eventTime", "eventSource", "eventType", "eventSchemaVersion"} {
		want[name] = body[name].(string)
		if form == "java" {
			want[name] = "java:" + want[name]
		}
	}
	if form == "java" {
		want["__TypeId__"] = "org.onap.cps.ncmp.events.lcm.LcmEvent" + strings.ToUpper(version)
	}
	require.Equal(t, want, line.Default)
	require.Equal(t, want, line.Simple)
}

// The example of the documents is a piece of the program that the test above runs.
func TestKafkaTheJavaExampleIsWhatIsTested(t *testing.T) {
	t.Parallel()
	shown := regexp.MustCompile("(?s)```java\n(.*?)```").FindStringSubmatch(readRepo(t, "docs/events.md"))
	require.NotNil(t, shown)
	run := regexp.MustCompile(`(?s) // docs: register\n(.*?) +// docs: end`).FindStringSubmatch(readRepo(t, ".ci/java/Interop.java"))
	require.NotNil(t, run)
	require.Equal(t, strings.ReplaceAll("\n"+run[1], "\n    ", "\n")[1:], shown[1])
}
