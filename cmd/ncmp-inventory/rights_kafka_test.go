//go:build kafka

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ncmp-inventory/consumer"
)

const lab17 = `{"createdCmHandles":[{"cmHandle":"lab-17","cmHandleProperties":{"user":"s3cr3t-of-a-device"}}]}`

// By each mechanism, with the rights of the page and no other, a worker takes
// what comes, tells what became of it and says nothing of a password.
func TestKafkaEachWayToComeInWorks(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "mutual TLS"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			l, flags := s.lab(t, mechanism)
			s.grant(t, principal, slices.Concat(l.rights("worker"), l.rights("wanted")))
			topics := l.config.Kafka.Topics
			w := l.startWorker(mechanism, append(flags, "--outcomes", "all")...)
			w.awaitLine(`"publisher started"`)
			l.say(topics.Registrations[0], "lab-17", "1", consumer.TypeRegistration, lab17)
			require.Equal(t, "org.onap.ncmp.cmhandle-lcm-event.create", headerOf(l.record(topics.LCMEvents, 0), "ce_type"))
			l.say(topics.Heartbeats[0], "lab-17", "lab-17", consumer.TypeHeartbeat, `{"data":{"trustLevel":"NONE"}}`)
			l.record(topics.InventoryEvents, 0)
			l.say(topics.StateChanges[0], "lab-17", "2", "com.example.unknown", `{}`)
			l.record(topics.DeadLetters, 0)
			l.record(topics.Outcomes, 0)
			l.awaitNothingWaits()
			w.terminate()

			// The LCM events can be read again, so that sequences go on.
			w = l.startWorker("its successor", flags...)
			w.awaitLine(`"publisher started"`)
			l.say(topics.StateChanges[0], "lab-17", "3", consumer.TypeStateChange, `{"cmHandle":"lab-17","state":{"cmHandleState":"READY"}}`)
			l.record(topics.LCMEvents, 1)
			w.terminate()

			checked := runCommand(t, "", slices.Concat([]string{"config", "check"}, l.flags(), flags)...)
			require.Equal(t, exitDone, checked.code, checked.stdout+checked.stderr)
			for _, said := range []string{w.said.String(), checked.stdout, checked.stderr} {
				require.NotContains(t, said, "s3cr3t")
				require.NotContains(t, said, `"level":"error"`)
				for _, password := range s.passwords {
					require.NotContains(t, said, password)
				}
			}
			require.NotContains(t, w.said.String(), "no right")
		})
	}
}

// Of the rights of the page each is needed: without it the check and the worker
// name it, and what it is missing on.
func TestKafkaEachRightThatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	l, _ := s.lab(t, "OAUTHBEARER")
	needed := l.rights("worker")
	require.Len(t, needed, 9)
	for i, missing := range needed {
		t.Run(missing.String(), func(t *testing.T) {
			t.Parallel()
			who := "lacks-" + string(rune('a'+i))
			l := *l
			l.T = t
			flags := slices.Concat(l.flags(), s.by(&l, "OAUTHBEARER", who))
			s.grant(t, who, slices.Concat(needed[:i], needed[i+1:], l.rights("wanted")))
			want := strings.ToLower(missing.kind.String()) + " " + missing.name + ": no right to " + strings.ToUpper(missing.operation.String())
			if missing.kind == kmsg.ACLResourceTypeTopic && missing.name != l.config.Kafka.Topics.LCMEvents {
				want = "topic " + missing.name + ": "
			}
			for _, command := range [][]string{{"config", "check"}, {"worker"}} {
				got := runCommand(t, "", slices.Concat(command, flags)...)
				require.Equal(t, exitUsage, got.code, got.stdout+got.stderr)
				require.Contains(t, got.stderr, want)
				require.Contains(t, got.stderr, strings.ToUpper(missing.operation.String())+" on the "+strings.ToLower(missing.kind.String()))
				require.NotContains(t, got.stderr, s.passwords["OAUTHBEARER"])
				if command[0] == "worker" {
					require.Equal(t, 1, strings.Count(got.stderr, "ncmp-inventory: "), "nothing else is missing: %s", got.stderr)
				}
			}
		})
	}
}

// What is wanted but not needed: a worker goes without, and says so.
func TestKafkaWithoutTheWantedRightsAWorkerSaysSo(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	l, _ := s.lab(t, "OAUTHBEARER")
	flags := s.by(l, "OAUTHBEARER", "modest")
	s.grant(t, "modest", l.rights("worker"))
	w := l.startWorker("worker", flags...)
	w.awaitLine("grant DESCRIBE_CONFIGS on the topics")
	w.awaitLine("no right to write with the transactional id")
	require.Contains(t, w.said.String(), `"transactionalId":"ncmp-inventory-relay-`)
	w.kill()
}

// The rights of the page's other list are enough for the commands.
func TestKafkaTheRightsOfCommandsAreEnough(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	l, flags := s.lab(t, "OAUTHBEARER")
	s.grant(t, principal, slices.Concat(l.rights("worker"), l.rights("wanted")))
	w := l.startWorker("worker", flags...)
	w.awaitLine(`"publisher started"`)
	flags = slices.Concat(l.flags(), s.by(l, "OAUTHBEARER", "tools"))
	s.grant(t, "tools", l.rights("tools"))
	do := func(stdin string, args ...string) string {
		t.Helper()
		got := runCommand(t, stdin, slices.Concat(args, flags)...)
		require.Equal(t, exitDone, got.code, "%s: %s%s", args, got.stdout, got.stderr)
		return got.stdout
	}
	do(`{"createdCmHandles":[{"cmHandle":"lab-17"}],"dmiPlugin":"http://dmi:1"}`, "register", "-", "--wait")
	do("", "state", "lab-17", "--to", "READY", "--wait")
	l.say(l.config.Kafka.Topics.Registrations[0], "x", "2", consumer.TypeRegistration, `{"createdCmHandles":"x"}`)
	l.record(l.config.Kafka.Topics.DeadLetters, 0)
	require.Contains(t, do("", "dead-letters", "list"), "bad-shape")
	do("", "dead-letters", "show", "0/0")
	do("", "dead-letters", "replay", "--reason", "bad-shape", "--force")
	do("", "positions")
	do("", "verify")
	out := &watched{done: func(text string) bool { return strings.Count(text, "\n") == 2 }}
	got := runUntil(t, out, slices.Concat([]string{"watch", "--from", "1h", "--json"}, flags)...)
	require.Equal(t, exitDone, got.code, got.stderr)
	w.terminate()
}

// Who is not let in is told why, and nothing of what it came with.
func TestKafkaWhoIsNotLetInIsToldWhy(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	l, _ := s.lab(t, "PLAIN")
	stranger := newAuthority(t, t.TempDir())
	other := stranger.issue(t, t.TempDir(), principal)
	for name, c := range map[string]struct {
		mechanism string
		more      []string
		want      string
	}{
		"PLAIN":              {"PLAIN", []string{"--kafka.sasl.password", "wr0ng"}, "kafka.sasl.password: brokers: [58] SASL Authentication Failed"},
		"SCRAM-SHA-256":      {"SCRAM-SHA-256", []string{"--kafka.sasl.password", "wr0ng"}, "kafka.sasl.password: brokers: [58] SASL Authentication Failed"},
		"SCRAM-SHA-512":      {"SCRAM-SHA-512", []string{"--kafka.sasl.password", "wr0ng"}, "kafka.sasl.password: brokers: [58] SASL Authentication Failed"},
		"client secret":      {"OAUTHBEARER", []string{"--kafka.sasl.oauth.client-secret", "wr0ng"}, "kafka.sasl.oauth.client-secret: brokers: the token endpoint refuses the client: HTTP 401 (invalid_client); check client id, client secret and scope"},
		"audience":           {"OAUTHBEARER", []string{"--kafka.sasl.oauth.scope", "elsewhere"}, "kafka.sasl.oauth.client-secret: brokers: the broker does not take the token"},
		"unknown authority":  {"PLAIN", []string{"--kafka.tls.ca-file", stranger.file}, "kafka.tls.enabled: brokers: tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		"host name":          {"PLAIN", []string{"--kafka.tls.server-name", "elsewhere"}, "certificate is valid for kafka, not elsewhere"},
		"client certificate": {"mutual TLS", []string{"--kafka.tls.cert-file", other.certFile, "--kafka.tls.key-file", other.keyFile}, "kafka.tls.enabled: brokers: "},
		"no certificate":     {"mutual TLS", []string{"--kafka.tls.cert-file", "", "--kafka.tls.key-file", ""}, "kafka.tls.enabled: brokers: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := *l
			l.T = t
			flags := slices.Concat(s.by(&l, c.mechanism, principal), c.more)
			got := runCommand(t, "", slices.Concat([]string{"worker"}, l.flags(), flags)...)
			require.Equal(t, exitUsage, got.code, got.stderr)
			require.Contains(t, got.stderr, c.want)
			require.NotContains(t, got.stderr, "wr0ng")
			for _, password := range s.passwords {
				require.NotContains(t, got.stderr, password)
			}
		})
	}
}
