package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const twoBodies = `{"dmiPlugin":"http://dmi-1:8080","createdCmHandles":[
  {"cmHandle":"lab-17","alternateId":"/Lab=1/Node=17","moduleSetTag":"set-a","trustLevel":"COMPLETE",
   "cmHandleProperties":{"password":"hush-hush"},"publicCmHandleProperties":{"rack":"R4"}},
  {"cmHandle":"lab-18"},
  {"cmHandle":"lab/19"}]}
{"dmiPlugin":"http://dmi-2:8080","createdCmHandles":[{"cmHandle":"lab-20"}],"removedCmHandles":["nobody"]}
`

// TestCommands tells one story: the order of the steps matters.
func TestCommands(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	stop := s.start(t)

	t.Run("register waits and shows what failed", func(t *testing.T) {
		got := s.run(t, twoBodies, "register", "-", "--wait")
		require.Equal(t, exitWrong, got.code, got.stderr)
		require.Contains(t, got.stderr, "2 event(s) sent to ncmp-inventory-registrations")
		require.Contains(t, got.stderr, "3 entries succeeded, 2 failed")
		lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
		require.Len(t, lines, 3, got.stdout)
		require.Regexp(t, `^CM HANDLE +OPERATION +CODE +WHY$`, lines[0])
		require.Contains(t, got.stdout, "lab/19")
		require.Regexp(t, `nobody +remove +100 +cm handle reference\(s\) not found`, got.stdout)
	})
	t.Run("state changes a handle", func(t *testing.T) {
		got := s.run(t, "", "state", "lab-17", "lab-18", "--to", "ready", "--wait")
		require.Equal(t, exitDone, got.code, got.stderr)
		require.Contains(t, got.stderr, "2 entries succeeded, 0 failed")
		got = s.run(t, "", "state", "lab-20", "--to", "LOCKED", "--lock-reason", "MODULE_SYNC_FAILED", "--lock-details", "tried once", "--wait")
		require.Equal(t, exitDone, got.code, got.stderr)
		got = s.run(t, "", "state", "lab-17", "--to", "ADVISED", "--wait", "--json")
		require.Equal(t, exitWrong, got.code, got.stderr)
		require.True(t, json.Valid([]byte(got.stdout)), got.stdout)
		require.Contains(t, got.stdout, "illegal state transition READY -> ADVISED")
	})
	t.Run("get shows a handle and hides private values", func(t *testing.T) {
		got := s.run(t, "", "get", "/Lab=1/Node=17")
		require.Equal(t, exitDone, got.code, got.stderr)
		for _, want := range []string{`CM handle +lab-17`, `state +READY`, `module set tag +set-a`, `public rack +R4`, `private password +\*\*\*`, `dmiPlugin +http://dmi-1:8080`, `trust level +COMPLETE`} {
			require.Regexp(t, want, got.stdout)
		}
		require.NotContains(t, got.stdout, "hush-hush")
		require.Contains(t, s.run(t, "", "get", "lab-17", "--private").stdout, "hush-hush")
		got = s.run(t, "", "get", "lab-17", "--json")
		var h handleJSON
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &h))
		require.Equal(t, map[string]string{"password": "***"}, h.Private)
		require.EqualValues(t, "READY", h.State.State)
		got = s.run(t, "", "get", "nobody")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, `no CM handle has the id or alternate id "nobody"`)
	})
	t.Run("history shows what happened and why", func(t *testing.T) {
		got := s.run(t, "", "history", "/Lab=1/Node=17")
		require.Equal(t, exitDone, got.code, got.stderr)
		lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
		require.Len(t, lines, 3, got.stdout)
		require.Regexp(t, `^\S+Z +create +ADVISED  alternateId: "/Lab=1/Node=17"  moduleSetTag: "set-a"  publicCmHandleProperties: \{"rack":"R4"\} +ncmp-inventory-registrations/\d/0 +\S+ /ncmp-inventory/cli +\S{36}$`, lines[1])
		require.Regexp(t, `state +ADVISED -> READY  dataSyncEnabled: - -> false  syncState: - -> "NONE_REQUESTED" +ncmp-inventory-state-changes/`, lines[2])
		got = s.run(t, "", "history", "lab-20", "--json", "--limit", "1")
		require.Equal(t, exitDone, got.code, got.stderr)
		var e historyJSON
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &e))
		require.Equal(t, "state", e.What)
		require.JSONEq(t, `{"cmHandleState":"LOCKED","lockReason":{"reason":"MODULE_SYNC_FAILED","details":"tried once"}}`, string(e.After))
		require.Equal(t, "ncmp-inventory-state-changes", e.Cause.Topic)
		require.Equal(t, exitFailed, s.run(t, "", "history", "nobody").code)
		require.Equal(t, exitUsage, s.run(t, "", "history", "lab-20", "--limit", "0").code)
		for _, body := range []string{
			`{"createdCmHandles":[{"cmHandle":"lab-99","cmHandleProperties":{"password":"hush-hush"}}]}`,
			`{"updatedCmHandles":[{"cmHandle":"lab-99","publicCmHandleProperties":{"rack":"R5"}}]}`,
			`{"updatedCmHandles":[{"cmHandle":"lab-99","cmHandleProperties":{"password":"hush again"}}]}`,
			`{"removedCmHandles":["lab-99"]}`,
		} {
			require.Equal(t, exitDone, s.run(t, body, "register", "-", "--wait").code)
		}
		got = s.run(t, "", "history", "lab-99", "--json")
		require.Equal(t, exitDone, got.code, got.stderr)
		require.NotContains(t, got.stdout, "hush")
		var whats []string
		for _, line := range strings.Split(strings.TrimSpace(got.stdout), "\n") {
			var e historyJSON
			require.NoError(t, json.Unmarshal([]byte(line), &e), line)
			whats = append(whats, e.What)
			require.Equal(t, e.What != "create" && e.Before != nil, strings.Contains(line, `"before"`), line)
			require.Equal(t, e.What != "delete" && e.After != nil, strings.Contains(line, `"after"`), line)
		}
		require.Equal(t, []string{"create", "update", "update", "remove", "delete"}, whats)
	})
	t.Run("list chooses", func(t *testing.T) {
		for _, c := range []struct {
			args []string
			want []string
		}{
			{nil, []string{"lab-17", "lab-18", "lab-20"}},
			{[]string{"--state", "locked"}, []string{"lab-20"}},
			{[]string{"--tag", ""}, []string{"lab-18", "lab-20"}},
			{[]string{"--tag", "set-a"}, []string{"lab-17"}},
			{[]string{"--dmi", "http://dmi-2:8080"}, []string{"lab-20"}},
			{[]string{"--property", "rack=R4"}, []string{"lab-17"}},
			{[]string{"--property", "rack=R5"}, nil},
			{[]string{"--after", "lab-17", "--limit", "1"}, []string{"lab-18"}},
			{[]string{"--stuck", "1ns"}, []string{"lab-20"}},
			{[]string{"--stuck", "1h"}, nil},
			{[]string{"--trust", "none"}, nil},
		} {
			got := s.run(t, "", append([]string{"list"}, c.args...)...)
			require.Equal(t, exitDone, got.code, got.stderr)
			var ids []string
			for _, line := range strings.Split(strings.TrimSpace(got.stdout), "\n")[1:] {
				ids = append(ids, strings.Fields(line)[0])
			}
			require.Equal(t, c.want, ids, "%v", c.args)
		}
		got := s.run(t, "", "list", "--limit", "1")
		require.Contains(t, got.stderr, `--after "lab-17"`)
		got = s.run(t, "", "list", "--json")
		require.Equal(t, 3, strings.Count(got.stdout, "\n"))
		require.NotContains(t, got.stdout, "hush-hush")
		require.Contains(t, s.run(t, "", "list", "--state", "LOCKED").stdout, "MODULE_SYNC_FAILED: tried once")
		require.Equal(t, exitUsage, s.run(t, "", "list", "--property", "rack").code)
		require.Equal(t, exitUsage, s.run(t, "", "list", "--trust", "some").code)
	})
	t.Run("watch follows from the beginning", func(t *testing.T) {
		out := &watched{done: func(s string) bool { return strings.Count(s, "\n") >= 6 }}
		got := runUntil(t, out, s.args([]string{"watch", "--from", "earliest"})...)
		require.Equal(t, exitDone, got.code, got.stderr)
		require.Regexp(t, `create +lab-17  ADVISED  #\d+`, got.stdout)
		require.Regexp(t, `update +lab-17  ADVISED -> READY  dataSyncEnabled: - -> false  #\d+`, got.stdout)
		require.Regexp(t, `update +lab-20  ADVISED -> LOCKED  #\d+`, got.stdout)
		out = &watched{done: func(s string) bool { return strings.Count(s, "\n") >= 2 }}
		got = runUntil(t, out, s.args([]string{"watch", "--from", "1h", "--handle", "lab-18", "--json"})...)
		require.Equal(t, exitDone, got.code, got.stderr)
		for _, line := range strings.Split(strings.TrimSpace(got.stdout), "\n") {
			require.Contains(t, line, `"lab-18"`)
			var e struct {
				lcmEvent
				EventID   string `json:"eventId"`
				ID        string `json:"ce_id"`
				Sequence  string `json:"sequence"`
				Partition *int   `json:"partition"`
				Offset    *int   `json:"offset"`
			}
			require.NoError(t, json.Unmarshal([]byte(line), &e), line)
			require.Equal(t, "lab-18", e.Event.ID, line)
			require.Equal(t, e.EventID, e.ID, line)
			require.Regexp(t, `^[1-9]\d*$`, e.Sequence, line)
			require.NotNil(t, e.Partition, line)
			require.NotNil(t, e.Offset, line)
		}
		out = &watched{done: func(s string) bool { return strings.Count(s, "\n") >= 1 }}
		got = runUntil(t, out, s.args([]string{"watch", "--from", "earliest", "--state", "locked"})...)
		require.Contains(t, got.stdout, "lab-20")
		require.Equal(t, exitUsage, s.run(t, "", "watch", "--from", "yesterday").code)
	})
	t.Run("positions show how far each partition is", func(t *testing.T) {
		got := s.run(t, "", "positions")
		require.Equal(t, exitDone, got.code, got.stderr)
		require.Len(t, strings.Split(strings.TrimSpace(got.stdout), "\n"), 1+9, got.stdout)
		got = s.run(t, "", "positions", "--json")
		var sent, applied int64
		for _, line := range strings.Split(strings.TrimSpace(got.stdout), "\n") {
			var p position
			require.NoError(t, json.Unmarshal([]byte(line), &p))
			sent, applied = sent+p.End, applied+p.Position
			require.Zero(t, p.Lag)
			require.True(t, p.Stored, line)
			require.Empty(t, p.Note)
		}
		require.EqualValues(t, 10, sent)
		require.Equal(t, sent, applied)
	})
	t.Run("verify finds nothing wrong", func(t *testing.T) {
		got := s.run(t, "", "verify")
		require.Equal(t, exitDone, got.code, got.stdout+got.stderr)
		require.Equal(t, "nothing is wrong\n", got.stdout)
		require.Contains(t, got.stderr, "3 CM handles")
	})
	t.Run("config check finds nothing wrong", func(t *testing.T) {
		got := s.run(t, "", "config", "check")
		require.Equal(t, exitDone, got.code, got.stdout+got.stderr)
		require.Regexp(t, `ok +group ncmp-inventory +stable, 1 member`, got.stdout)
	})
	t.Run("probes and metrics are served", func(t *testing.T) {
		code, body := s.body(t, "/readyz")
		require.Equal(t, http.StatusOK, code, body)
		_, body = s.body(t, "/metrics")
		for _, name := range []string{"ncmp_inventory_handles{", "ncmp_inventory_outbox_bytes ", "ncmp_inventory_records_total{", "ncmp_inventory_lag_seconds{"} {
			require.Contains(t, body, "\n"+name)
		}
		require.NotContains(t, body, "lab-17", "no series may name a handle")
	})
	require.NoError(t, stop())
}

func TestRegisterRefusesWhatNoWorkerCouldRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "bodies.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"removedCmHandles":[]} [1]`), 0o600))
	for _, c := range []struct{ name, stdin, arg, want string }{
		{"no object", "", file, file + ", object 2: want a JSON object"},
		{"cut off", `{"a":`, "-", "standard input, object 1"},
		{"a duplicate member", `{"dmiPlugin":"","dmiPlugin":""}`, "-", "object 1"},
		{"a missing file", "", "/nowhere.json", "/nowhere.json"},
		{"a wrong shape", `{"createdCmHandles":7}`, "-", "createdCmHandles"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			broker := newBroker(t)
			got := runCommand(t, c.stdin, "register", c.arg, "--kafka.brokers", strings.Join(broker.ListenAddrs(), ","))
			require.Equal(t, exitFailed, got.code, got.stderr)
			require.Contains(t, got.stderr, c.want)
		})
	}
}

func TestValidateSendsNothing(t *testing.T) {
	t.Parallel()
	got := runCommand(t, twoBodies, "register", "-", "--validate")
	require.Equal(t, exitWrong, got.code, got.stderr)
	require.Regexp(t, `standard input, object 1 +create +3 +lab/19 +110`, got.stdout)
	require.Contains(t, got.stderr, "2 bodies with 5 entries checked, 1 would be refused")
	got = runCommand(t, `{"removedCmHandles":["a"]}`, "register", "-", "--validate")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Empty(t, got.stdout)
	got = runCommand(t, `{"createdCmHandles":7}`, "register", "-", "--validate")
	require.Equal(t, exitWrong, got.code)
	require.Contains(t, got.stdout, "bad-shape")
}

func TestStateRefusesWhatCannotBeAskedFor(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"state", "a"}, {"state", "--to", "READY"}, {"state", "a", "--to", "DELETING"}, {"state", "a", "--to", "nowhere"},
		{"state", "a", "--to", "READY"}, // no brokers
	} {
		require.Equal(t, exitUsage, runCommand(t, "", args...).code, "%v", args)
	}
}

func TestWaitingForOutcomesEnds(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true) // and no worker
	got := s.run(t, "", "state", "a", "--to", "READY", "--wait", "--timeout", "1ms")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "1 outcome(s) are missing: they did not come in time; does a worker run?")
}

func TestVerifyTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	pool := s.db.Pool(t)
	_, err := pool.Exec(t.Context(), `insert into ncmp_inventory.reference (key, owner) values ('ghost', 'nobody')`)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `insert into ncmp_inventory.position (topic_id, partition, topic, cluster_id, next_offset)
		values ($1, 0, 'dmi-device-heartbeat', 'kfake', 99), ($2, 0, 'gone', 'kfake', 0)`,
		s.broker.TopicInfo("dmi-device-heartbeat").TopicID, [16]byte{1})
	require.NoError(t, err)
	got := s.run(t, "", "verify")
	require.Equal(t, exitWrong, got.code, got.stderr)
	require.Regexp(t, `wrong +reference-orphan +1 `, got.stdout)
	require.Regexp(t, `wrong +position-broker +1 .*dmi-device-heartbeat/0: the position is beyond the end`, got.stdout)
	require.Regexp(t, `notice +position-unused +1 .*gone/0`, got.stdout)
	got = s.run(t, "", "verify", "--json")
	require.Equal(t, exitWrong, got.code)
	var r reportJSON
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &r))
	require.True(t, r.Wrong)
	require.Len(t, r.Findings, 3)
	got = runCommand(t, "", "verify", "--database.url", s.db.URL)
	require.Contains(t, got.stderr, "kafka.brokers is not set")
}
