package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"ncmp-inventory/cmd/internal/proof"
	"ncmp-inventory/inventory"
	"ncmp-inventory/store"
)

// bulk is an update of two handles: more than a worker with strict limits takes.
func bulk(id, producer string, handles ...string) kafka.Record {
	entries := make([]string, len(handles))
	for i, h := range handles {
		entries[i] = fmt.Sprintf(`{"cmHandle":%q,"dataProducerIdentifier":%q}`, h, producer)
	}
	return cloudEvent(id, "org.onap.ncmp.inventory.registration.v1", "bulk", `{"updatedCmHandles":[`+strings.Join(entries, ",")+`]}`)
}

func creating(id string, handles ...string) kafka.Record {
	entries := make([]string, len(handles))
	for i, h := range handles {
		entries[i] = fmt.Sprintf(`{"cmHandle":%q,"cmHandleProperties":{"password":"hush-hush"}}`, h)
	}
	return cloudEvent(id, "org.onap.ncmp.inventory.registration.v1", "bulk", `{"dmiPlugin":"http://dmi:1","createdCmHandles":[`+strings.Join(entries, ",")+`]}`)
}

// strict starts a worker to which events of two handles are dead letters.
func (s *system) strict(t *testing.T) (stop func() error) {
	t.Helper()
	s.cfg.Limits.HandlesPerEvent = 1
	stop = s.start(t)
	s.cfg.Limits.HandlesPerEvent = 100_000
	s.awaitReady(t)
	return stop
}

// awaitDeadLetters waits until so many are listed and returns them.
func (s *system) awaitDeadLetters(t *testing.T, n int) []deadLetterJSON {
	t.Helper()
	var list []deadLetterJSON
	require.Eventually(t, func() bool {
		list = nil
		got := s.run(t, "", "dead-letters", "list", "--json", "--limit", "0")
		require.Equal(t, exitDone, got.code, got.stderr)
		for line := range strings.Lines(got.stdout) {
			var d deadLetterJSON
			require.NoError(t, json.Unmarshal([]byte(line), &d))
			list = append(list, d)
		}
		return len(list) >= n
	}, patience, 20*time.Millisecond, "%d dead letters", n)
	require.Len(t, list, n)
	return list
}

// input counts what stands on an input topic.
func (s *system) input(t *testing.T, topic string) (n int64) {
	t.Helper()
	ends, err := proof.Ends(t.Context(), s.cfg.Kafka.Brokers, topic)
	require.NoError(t, err)
	for _, end := range ends {
		n += end
	}
	return n
}

func (s *system) replays(t *testing.T, args ...string) (result, map[string][]caseJSON) {
	t.Helper()
	got := s.run(t, "", append([]string{"dead-letters", "replay", "--json"}, args...)...)
	return got, casesOf(t, got)
}

// casesOf are what a replay printed, by verdict.
func casesOf(t *testing.T, got result) map[string][]caseJSON {
	t.Helper()
	cases := map[string][]caseJSON{}
	for line := range strings.Lines(got.stdout) {
		var c caseJSON
		require.NoError(t, json.Unmarshal([]byte(line), &c))
		cases[c.Verdict] = append(cases[c.Verdict], c)
	}
	return cases
}

// TestDeadLetters tells one story: the order of the steps matters.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	stop := s.strict(t)
	broken := creating("broken", "z")
	broken.Value = kafka.NewBytes([]byte(`{"createdCmHandles":[{"cmHandle":"z","cmHandleProperties":{"password":"hush-hush"}}]} password=hush-hush`))
	s.produce(t, registrations, 1, creating("two", "x", "y"), broken, registrationOf("w"))
	s.produce(t, "ncmp-inventory-state-changes", 0, kafka.Record{Key: kafka.NewBytes([]byte("nobody")), Value: kafka.NewBytes([]byte("garbage")),
		Headers: []kafka.Header{{Key: "twice", Value: []byte("1")}, {Key: "twice", Value: nil}}})
	all := s.awaitDeadLetters(t, 3)
	byReason := map[string]deadLetterJSON{}
	for _, d := range all {
		byReason[d.Reason] = d
	}
	two, trailing, foreign := byReason["too-many-handles"], byReason["trailing-data"], byReason["not-a-cloudevent"]
	s.produce(t, "ncmp-inventory-dead-letters", 0, garbage(1)...) // somebody else's

	t.Run("list filters", func(t *testing.T) {
		require.Equal(t, registrations, two.Source.Topic)
		require.Equal(t, []int64{1, 0, 0}, []int64{int64(two.Source.Partition), two.Source.Offset, int64(two.Replays)})
		require.Equal(t, []string{"bulk", "two"}, []string{two.Key, two.EventID})
		for _, c := range []struct {
			args []string
			want []string
		}{
			{nil, []string{two.ID, trailing.ID, foreign.ID}},
			{[]string{"--reason", "trailing-data,not-a-cloudevent"}, []string{trailing.ID, foreign.ID}},
			{[]string{"--topic", "ncmp-inventory-state-changes"}, []string{foreign.ID}},
			{[]string{"--handle", "y"}, []string{two.ID}},
			{[]string{"--handle", "nobody"}, []string{foreign.ID}},
			{[]string{"--from", "1h"}, []string{two.ID, trailing.ID, foreign.ID}},
			{[]string{"--to", "1h"}, nil},
			{[]string{"--from", time.Now().Add(time.Hour).Format(time.RFC3339)}, nil},
		} {
			got := s.run(t, "", append([]string{"dead-letters", "list"}, c.args...)...)
			require.Equal(t, exitDone, got.code, got.stderr)
			var ids []string
			for _, line := range strings.Split(strings.TrimSpace(got.stdout), "\n")[1:] {
				ids = append(ids, strings.Fields(line)[0])
			}
			require.ElementsMatch(t, c.want, ids, "%v", c.args)
			require.NotContains(t, got.stdout, "hush")
		}
		got := s.run(t, "", "dead-letters", "list", "--limit", "1")
		require.Contains(t, got.stderr, "--limit 0 shows all")
		require.Contains(t, s.run(t, "", "dead-letters", "list").stderr, "1 record(s) among the dead letters were not written by a worker")
		require.Equal(t, exitUsage, s.run(t, "", "dead-letters", "list", "--from", "yesterday").code)
	})
	t.Run("show hides private values", func(t *testing.T) {
		got := s.run(t, "", "dead-letters", "show", trailing.ID)
		require.Equal(t, exitDone, got.code, got.stderr)
		require.NotContains(t, got.stdout, "hush")
		for _, want := range []string{`reason +trailing-data`, `byte +\d+`, `source +` + registrations + `/1/1`, `key +bulk`, `header ce_id +broken`, `"password": "\*\*\*"`, `are no valid JSON and hidden; --private shows them`} {
			require.Regexp(t, want, got.stdout)
		}
		require.Contains(t, s.run(t, "", "dead-letters", "show", trailing.ID, "--private").stdout, "password=hush-hush")
		got = s.run(t, "", "dead-letters", "show", foreign.ID, "--json")
		var d deadLetterJSON
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &d))
		require.Equal(t, []headerJSON{{"twice", "1"}, {"twice", ""}}, d.Headers)
		require.Equal(t, exitFailed, s.run(t, "", "dead-letters", "show", "0/999").code)
		require.Equal(t, exitUsage, s.run(t, "", "dead-letters", "show", "first").code)
	})
	t.Run("a dry run plans and sends nothing", func(t *testing.T) {
		before := s.input(t, registrations)
		got, cases := s.replays(t, "--dry-run")
		require.Equal(t, exitWrong, got.code, got.stderr)
		require.Len(t, cases[verdictSend], 1)
		require.Equal(t, two.ID, cases[verdictSend][0].ID)
		require.Equal(t, []changeJSON{{"x", "create"}, {"y", "create"}}, cases[verdictSend][0].Changes)
		require.Len(t, cases[verdictFails], 2)
		require.Contains(t, got.stderr, "nothing was sent")
		require.Equal(t, before, s.input(t, registrations))
		require.Equal(t, exitFailed, s.run(t, "", "get", "x").code)
		table := s.run(t, "", "dead-letters", "replay", "--dry-run", "--handle", "x")
		require.Equal(t, exitDone, table.code, table.stderr)
		require.Regexp(t, two.ID+` +to be sent +too-many-handles +`+registrations+`/1/0 +bulk +create x; create y`, table.stdout)
	})
	require.NoError(t, stop())
	s.start(t)
	s.awaitReady(t)
	t.Run("replay sends what passes, once", func(t *testing.T) {
		before := s.input(t, registrations)
		got, cases := s.replays(t, two.ID)
		require.Equal(t, exitDone, got.code, got.stderr)
		require.Len(t, cases[verdictSent], 1)
		require.Equal(t, registrations, cases[verdictSent][0].Target.Topic)
		require.EqualValues(t, 1, cases[verdictSent][0].Target.Partition, "where it came from")
		s.requireHandle(t, "x")
		s.requireHandle(t, "y")
		got, cases = s.replays(t)
		require.Equal(t, exitWrong, got.code, got.stderr)
		require.Len(t, cases[verdictDone], 1)
		require.Empty(t, cases[verdictSent])
		require.Equal(t, before+1, s.input(t, registrations))
		require.Contains(t, s.run(t, "", "dead-letters", "list").stdout, "replayed as "+registrations+"/1/3")
	})
	t.Run("the record is as it came, and says what it is", func(t *testing.T) {
		cl, err := kgo.NewClient(kgo.SeedBrokers(s.cfg.Kafka.Brokers...),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{registrations: {1: kgo.NewOffset().At(3)}}))
		require.NoError(t, err)
		defer cl.Close()
		got := cl.PollRecords(t.Context(), 1).Records()
		require.Len(t, got, 1)
		require.Equal(t, "bulk", string(got[0].Key))
		sent := creating("two", "x", "y")
		want, err := kafka.ReadAll(sent.Value)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got[0].Value))
		var headers []string
		for _, h := range got[0].Headers {
			headers = append(headers, h.Key+"="+string(h.Value))
		}
		require.Equal(t, []string{
			"ce_specversion=1.0", "ce_id=two", "ce_source=/test", "ce_type=org.onap.ncmp.inventory.registration.v1", "content-type=application/json",
			"ncmp_replay_count=1", "ncmp_replay_of=" + two.Source.TopicID + "/1/0", "ncmp_replay_timestamp=" + two.Source.Time,
		}, headers)
	})
}

// A record of a handle that changed later is refused, its neighbours are sent.
func TestAReplayNeverOverwritesWhatCameLater(t *testing.T) {
	t.Parallel()
	for _, history := range []bool{true, false} {
		t.Run(fmt.Sprintf("history %v", history), func(t *testing.T) {
			t.Parallel()
			s := newSystem(t, true)
			s.cfg.History.Enabled = history
			stop := s.strict(t)
			s.produce(t, registrations, 0, registrationOf("a"), registrationOf("b"), registrationOf("c"), registrationOf("d"))
			s.requireHandle(t, "d")
			s.produce(t, registrations, 1, bulk("old", "old", "a", "b"), bulk("free", "old", "c", "d"))
			s.awaitDeadLetters(t, 2)
			require.NoError(t, stop())
			s.start(t)
			s.awaitReady(t)
			got := s.run(t, "", "state", "b", "--to", "READY", "--wait")
			require.Equal(t, exitDone, got.code, got.stderr)

			got, cases := s.replays(t)
			require.Equal(t, exitWrong, got.code, got.stderr)
			require.Len(t, cases[verdictSent], 1)
			require.EqualValues(t, 1, cases[verdictSent][0].Source.Offset)
			require.Len(t, cases[verdictLater], 1)
			later := cases[verdictLater][0].Later
			require.Len(t, later, 1)
			require.Equal(t, "b", later[0].ID)
			if history {
				require.Equal(t, "ncmp-inventory-state-changes", later[0].Source.Topic)
				require.Regexp(t, `b: state by ncmp-inventory-state-changes/\d/0 at `, s.run(t, "", "dead-letters", "replay").stdout)
			} else {
				require.Contains(t, s.run(t, "", "dead-letters", "replay").stdout, "b was updated at ")
			}
			s.await(t, "/metrics", func(_ int, body string) bool {
				return strings.Contains(body, `ncmp_inventory_handle_operations_total{operation="update",result="ok"} 2`)
			})

			got, cases = s.replays(t, "--force", "--reason", "too-many-handles")
			require.Equal(t, exitDone, got.code, got.stderr)
			require.Len(t, cases[verdictSent], 1)
			s.await(t, "/metrics", func(_ int, body string) bool {
				return strings.Contains(body, `ncmp_inventory_handle_operations_total{operation="update",result="ok"} 4`)
			})
		})
	}
}

// What reaches the topic after the command looked and before its record does, the
// worker sees: it sets the record aside once more, and --force applies it.
func TestAReplayThatIsOvertakenOnTheWayOverwritesNothing(t *testing.T) {
	t.Parallel()
	for _, history := range []bool{true, false} {
		t.Run(fmt.Sprintf("history %v", history), func(t *testing.T) {
			t.Parallel()
			s := newSystem(t, true)
			s.cfg.History.Enabled = history
			stop := s.strict(t)
			s.produce(t, registrations, 0, registrationOf("a"), registrationOf("b"))
			s.requireHandle(t, "b")
			s.produce(t, registrations, 1, bulk("old", "old", "a", "b"))
			s.awaitDeadLetters(t, 1)
			require.NoError(t, stop())
			s.start(t)
			s.awaitReady(t)

			sc, err := storeConfig(&s.cfg, zap.NewNop(), prometheus.NewRegistry())
			require.NoError(t, err)
			db, err := store.Open(t.Context(), sc)
			require.NoError(t, err)
			defer db.Close()
			r := replay{app: &app{stdout: t.Output(), stderr: t.Output()}, cfg: &s.cfg, store: db, patience: patience}
			require.NoError(t, r.filter.prepare(r.cfg, nil))
			disconnect, err := r.connect(t.Context())
			require.NoError(t, err)
			defer disconnect()
			list, err := r.choose(t.Context())
			require.NoError(t, err)
			cases, err := r.judge(t.Context(), list)
			require.NoError(t, err)
			require.Equal(t, verdictSend, cases[0].verdict)
			got := s.run(t, "", "state", "b", "--to", "READY", "--wait")
			require.Equal(t, exitDone, got.code, got.stderr)
			require.NoError(t, r.send(t.Context(), cases))

			again := s.awaitDeadLetters(t, 2)[1]
			require.Equal(t, inventory.ReasonOvertaken, again.Reason)
			require.Equal(t, 1, again.Replays)
			if history {
				require.Regexp(t, `^b was changed by ncmp-inventory-state-changes/\d/0 of `, again.Text)
			} else {
				require.Regexp(t, `^b was updated at `, again.Text)
			}
			require.NotContains(t, s.run(t, "", "get", "a", "--json").stdout, "old")

			got, forced := s.replays(t, "--force", "--reason", inventory.ReasonOvertaken)
			require.Equal(t, exitDone, got.code, got.stderr)
			require.Len(t, forced[verdictSent], 1)
			require.Eventually(t, func() bool {
				return strings.Contains(s.run(t, "", "get", "a", "--json").stdout, "old")
			}, patience, 20*time.Millisecond)
		})
	}
}

// Two dead letters of one handle are replayed in their order, the second also
// when the first one's replay was applied meanwhile.
func TestDeadLettersOfOneHandleAreReplayedInOrder(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	stop := s.strict(t)
	s.produce(t, registrations, 0, registrationOf("a"), registrationOf("b"))
	s.requireHandle(t, "b")
	for i := range 4 {
		r := bulk(fmt.Sprint("e", i), fmt.Sprint("p", i), "a", "b")
		r.Key = kafka.NewBytes(fmt.Append(nil, "key", i)) // anywhere among the dead letters
		s.produce(t, registrations, 1, r)
	}
	s.awaitDeadLetters(t, 4)
	require.NoError(t, stop())
	s.start(t)
	s.awaitReady(t)
	got, cases := s.replays(t, "--rate", "1.5") // one at a time
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Len(t, cases[verdictSent], 4)
	for i, c := range cases[verdictSent] {
		require.EqualValues(t, i, c.Source.Offset)
	}
	require.Eventually(t, func() bool {
		return strings.Contains(s.run(t, "", "get", "a").stdout, "p3")
	}, patience, 20*time.Millisecond)
}

func TestARecordThatFailsAgainIsParked(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	s.start(t)
	s.awaitReady(t)
	s.produce(t, registrations, 0, garbage(1)...)
	s.awaitDeadLetters(t, 1)
	for n := 1; n <= maxReplays; n++ {
		got, cases := s.replays(t, "--force")
		require.Equal(t, exitDone, got.code, got.stderr)
		require.Len(t, cases[verdictSent], 1)
		require.Equal(t, n, cases[verdictSent][0].Attempt)
		list := s.awaitDeadLetters(t, n+1)
		most := 0
		for _, d := range list {
			most = max(most, d.Replays)
			require.Equal(t, d.Replays >= maxReplays, d.Parked)
		}
		require.Equal(t, n, most)
	}
	got, cases := s.replays(t, "--force")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Empty(t, cases[verdictSent])
	require.Len(t, cases[verdictParked], 1)
	require.Contains(t, s.run(t, "", "dead-letters", "list").stdout, "parked: failed again after 3 replays")
}

// The command is killed while a broker takes its second batch: what arrived is
// found by the next one, and nothing is sent twice.
func TestAReplayThatWasKilledGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	stop := s.strict(t)
	const records = 6
	for i := range records {
		s.produce(t, registrations, i%3, creating(fmt.Sprint("e", i), fmt.Sprint("a", i), fmt.Sprint("b", i)))
	}
	s.awaitDeadLetters(t, records)
	require.NoError(t, stop())

	for _, lost := range []bool{false, true} { // the batch in flight arrives, or is lost
		cmd := exec.Command(os.Args[0], s.args([]string{"dead-letters", "replay", "--rate", "1.5", "--force"})...)
		cmd.Env = append(os.Environ(), runAsProgram+"=1")
		require.NoError(t, cmd.Start())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait() // killed
		}()
		n := 0
		s.broker.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			if n++; n < 2 {
				s.broker.KeepControl()
				return nil, nil, false
			}
			_ = cmd.Process.Kill()
			<-ended
			s.broker.DropControl()
			if lost {
				return nil, kerr.NetworkException, true
			}
			return nil, nil, false
		})
		<-ended
		open := 0
		require.Eventually(t, func() bool { // the broker may still be at it
			pool := s.db.Pool(t)
			defer pool.Close()
			require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from ncmp_inventory.replay where target_offset is null`).Scan(&open))
			return open == 1
		}, patience, 20*time.Millisecond)
	}
	got, cases := s.replays(t, "--rate", "0", "--force")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Len(t, cases[verdictDone], 3, "two that were acknowledged and one that arrived; the lost one is sent again")
	require.Len(t, cases[verdictSent], 3)
	require.EqualValues(t, 2*records, s.input(t, registrations))
	s.start(t)
	s.awaitReady(t)
	for i := range records {
		s.requireHandle(t, fmt.Sprint("b", i))
	}
	s.await(t, "/metrics", func(_ int, body string) bool {
		return strings.Contains(body, fmt.Sprintf(`ncmp_inventory_handle_operations_total{operation="create",result="ok"} %d`, 2*records))
	})
}

func TestAReplayWaitsForTheWorkers(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	stop := s.strict(t)
	s.produce(t, registrations, 0, creating("two", "x", "y"))
	s.awaitDeadLetters(t, 1)
	require.NoError(t, stop())
	s.produce(t, registrations, 2, registrationOf("x"))
	got, cases := s.replays(t, "--timeout", "1ms")
	require.Equal(t, exitFailed, got.code)
	require.Empty(t, cases)
	require.Contains(t, got.stderr, "events in "+registrations+"/2 are not applied yet")
	s.start(t)
	got, cases = s.replays(t)
	require.Equal(t, exitWrong, got.code, got.stderr)
	require.Len(t, cases[verdictLater], 1, "it was created meanwhile")
}

func TestSortByOrigin(t *testing.T) {
	t.Parallel()
	letter := func(partition int32, offset int64, second int) *deadLetter {
		p := store.Place{Partition: inventory.Partition{Index: partition}, Offset: offset, Time: time.Unix(int64(second), 0)}
		return &deadLetter{source: p, origin: p}
	}
	// Offset 8 of partition 0 has an earlier time than 7 before it.
	list := []*deadLetter{letter(0, 8, 5), letter(1, 1, 9), letter(0, 7, 10), letter(1, 2, 11), letter(0, 3, 1)}
	sortByOrigin(list)
	var got []string
	for _, d := range list {
		got = append(got, fmt.Sprintf("%d/%d", d.origin.Index, d.origin.Offset))
	}
	require.Equal(t, []string{"0/3", "1/1", "0/7", "0/8", "1/2"}, got)
}
