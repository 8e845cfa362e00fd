package config

import (
	"fmt"
	"regexp"
	"slices"
)

// validate checks what no single key can: it runs when all of them are good.
func (l *Loaded) validate() []error {
	var errs []error
	fail := func(key, format string, args ...any) {
		errs = append(errs, &Error{Key: key, Source: l.sources[key], Reason: fmt.Sprintf(format, args...)})
	}
	k := &l.Kafka
	if k.HeartbeatInterval > k.SessionTimeout/3 {
		fail("kafka.heartbeat-interval", "%s is more than a third of kafka.session-timeout (%s)", showDuration(k.HeartbeatInterval), showDuration(k.SessionTimeout))
	}
	if (k.TLS.CertFile == "") != (k.TLS.KeyFile == "") {
		fail("kafka.tls.cert-file", "a client certificate needs both kafka.tls.cert-file and kafka.tls.key-file")
	}
	if t := k.TLS; !t.Enabled && (t.CAFile != "" || t.CertFile != "" || t.ServerName != "" || t.Insecure) {
		fail("kafka.tls.enabled", "is off, but other kafka.tls keys are set: switch it on or remove them")
	}
	switch k.SASL.Mechanism {
	case "off":
	case "OAUTHBEARER":
		if o := k.SASL.OAuth; o.TokenEndpoint == "" || o.ClientID == "" || !o.ClientSecret.IsSet() {
			fail("kafka.sasl.mechanism", "OAUTHBEARER needs kafka.sasl.oauth.token-endpoint, .client-id and .client-secret")
		}
	default:
		if k.SASL.Username == "" || !k.SASL.Password.IsSet() {
			fail("kafka.sasl.mechanism", "%s needs kafka.sasl.username and kafka.sasl.password", k.SASL.Mechanism)
		}
	}
	if l.Limits.RecordBytes > l.Limits.Memory {
		fail("limits.record-bytes", "%s is more than limits.memory (%s)", showSize(l.Limits.RecordBytes), showSize(l.Limits.Memory))
	}
	if l.Batch.MaxBytes > l.Limits.Memory {
		fail("batch.max-bytes", "%s is more than limits.memory (%s)", showSize(l.Batch.MaxBytes), showSize(l.Limits.Memory))
	}
	l.validateTopics(fail)
	return errs
}

// validateTopics refuses loops: an output that is an input would be read back,
// and two outputs in one topic would mix what consumers expect apart.
func (l *Loaded) validateTopics(fail func(key, format string, args ...any)) {
	t := l.Kafka.Topics
	inputs := t.Inputs()
	if len(inputs) == 0 {
		fail("kafka.topics.registrations", "no input topic is set")
	}
	seen := map[string]string{}
	for _, out := range []struct{ key, topic string }{
		{"kafka.topics.lcm-events", t.LCMEvents}, {"kafka.topics.inventory-events", t.InventoryEvents},
		{"kafka.topics.outcomes", t.Outcomes}, {"kafka.topics.dead-letters", t.DeadLetters},
	} {
		if slices.Contains(inputs, out.topic) {
			fail(out.key, "topic %q is an input topic too: the worker would read what it writes", out.topic)
		}
		if other, ok := seen[out.topic]; ok {
			fail(out.key, "topic %q is the topic of %s too", out.topic, other)
		}
		seen[out.topic] = out.key
	}
}

// Require checks that keys are set which have no default. A command asks for
// those it uses.
func (l *Loaded) Require(keys ...string) error {
	for _, k := range Keys {
		if !slices.Contains(keys, k.Name) {
			continue
		}
		empty := false
		switch v := k.show(&l.Config).(type) {
		case string:
			empty = v == ""
		case []string:
			empty = len(v) == 0
		}
		if empty {
			return &Error{Key: k.Name, Reason: fmt.Sprintf("is missing: give --%s, %s, or the key in the file of --config", k.Name, k.Env())}
		}
	}
	return nil
}

// yamlLine is the part of yaml's message that says where.
var yamlLine = regexp.MustCompile(`line \d+`)

func (k Key) name() string { return k.Name }

// nearest is the known key with the fewest edits to name.
func nearest(name string, of func(Key) string) string {
	known := make([]string, len(Keys))
	for i, k := range Keys {
		known[i] = of(k)
	}
	best, _ := Nearest(name, known)
	return best
}

// Nearest is the known name with the fewest edits to name, and how many they
// are: insertions, deletions and replacements of bytes.
func Nearest(name string, known []string) (best string, edits int) {
	for i, k := range known {
		if d := distance(name, k); i == 0 || d < edits {
			best, edits = k, d
		}
	}
	return best, edits
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
