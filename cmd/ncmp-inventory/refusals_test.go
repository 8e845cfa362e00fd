package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidateAsJSONIsOneObject(t *testing.T) {
	t.Parallel()
	got := runCommand(t, twoBodies+`{"createdCmHandles":7}`, "register", "-", "--validate", "--json")
	require.Equal(t, exitWrong, got.code, got.stderr)
	var v validatedJSON
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &v), got.stdout)
	require.Equal(t, 3, v.Bodies)
	require.Equal(t, 5, v.Entries)
	require.Len(t, v.Refused, 2)
	require.Equal(t, "lab/19", v.Refused[0].ID)
	require.Equal(t, "110", v.Refused[0].Code)
	require.EqualValues(t, 3, v.Refused[0].Entry)
	require.Equal(t, "bad-shape", v.Refused[1].Details)
	got = runCommand(t, `{"removedCmHandles":["a"]}`, "register", "-", "--validate", "--json")
	require.Equal(t, exitDone, got.code, got.stderr)
	require.JSONEq(t, `{"bodies":1,"entries":1,"refused":[]}`, got.stdout)
}

func TestABodyWithoutEntriesIsWarnedAbout(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	for _, c := range []struct{ body, want string }{
		{`{"dmiPlugin":"x","createdCmHandels":[{"cmHandle":"a"}]}`, "standard input, object 1: warning: it has no entries; createdCmHandels is passed over, the nearest member is createdCmHandles"},
		{`{"createdcmhandles":[{"cmHandle":"a"}]}`, "the nearest member is createdCmHandles"},
		{`{"dmiPlugin":"x","removedCmHandles":[ ]}`, "it has no entries: want createdCmHandles"},
		{`{"removedCmHandles":["a"]}`, ""},
		{`{"upgradedCmHandles":{"cmHandles":["a"],"moduleSetTag":"t"}}`, ""},
	} {
		for _, args := range [][]string{{"register", "-", "--validate"}, {"register", "-"}} {
			got := s.run(t, c.body, args...)
			require.Equal(t, exitDone, got.code, got.stderr)
			require.Equal(t, c.want != "", strings.Contains(got.stderr, "warning"), got.stderr)
			require.Contains(t, got.stderr, c.want)
		}
	}
}

// Whatever is wrong with a file, what is private is not told.
func TestRegisterDoesNotTellPrivateProperties(t *testing.T) {
	t.Parallel()
	brokers := strings.Join(newBroker(t).ListenAddrs(), ",")
	for _, c := range []struct{ properties, want string }{
		{`{"SECRETN":"SECRETV","SECRETN":"SECRETV"}`, "the member stands twice in its object, createdCmHandles[0].cmHandleProperties[…], byte "},
		{`{"SECRETN":SECRETV}`, "invalid JSON, createdCmHandles[0].cmHandleProperties[…]"},
		{`{"SECRETN":"SECRETV\p"}`, "invalid JSON, createdCmHandles[0].cmHandleProperties[…]"},
		{`{"SECRETN":"SECRETV`, "createdCmHandles[0].cmHandleProperties"},
		{`{"SECRETN":["SECRETV"]}`, ""},
	} {
		for _, args := range [][]string{{"register", "-", "--validate"}, {"register", "-", "--kafka.brokers", brokers}} {
			got := runCommand(t, `{"createdCmHandles":[{"cmHandle":"a","cmHandleProperties":`+c.properties+`}]}`, args...)
			require.NotEqual(t, exitDone, got.code)
			require.NotContains(t, got.stdout+got.stderr, "SECRET")
			require.Contains(t, got.stderr, c.want)
		}
	}
}

func TestWhatIsNotThereIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--state BOGUS: want ADVISED, READY, LOCKED or DELETING", []string{"list", "--state", "BOGUS"}},
		{"--state DELETED", []string{"list", "--state", "DELETED"}},
		{"--limit -1", []string{"list", "--limit", "-1"}},
		{"--stuck -5m0s", []string{"list", "--stuck", "-5m"}},
		{"--state FOO: want ADVISED, READY, LOCKED, DELETING or DELETED", []string{"watch", "--state", "ready,FOO"}},
		{"--limit -2", []string{"dead-letters", "list", "--limit", "-2"}},
		{"--reason bad-jsn: no such reason; the nearest known one is bad-json", []string{"dead-letters", "list", "--reason", "bad-jsn"}},
		{"the nearest known one is too-large", []string{"dead-letters", "replay", "--reason", "to-large"}},
		{`there is no command "foo"`, []string{"help", "foo"}},
		{`there is no command "config foo"`, []string{"help", "config", "foo"}},
		{`unknown command "foo"`, []string{"config", "foo"}},
		{"an id is empty", []string{"state", "", "--to", "READY"}},
		{"--data-sync goes with --to READY only, not with LOCKED", []string{"state", "a", "--to", "LOCKED", "--data-sync"}},
	} {
		args := append(c.args, "--kafka.brokers", "127.0.0.1:1", "--database.url", "postgres://127.0.0.1:1/db")
		got := runCommand(t, "", args...)
		require.Equal(t, exitUsage, got.code, "%v: %s", c.args, got.stderr)
		require.Contains(t, got.stderr, c.want)
	}
	for _, args := range [][]string{{"help"}, {"help", "config"}, {"help", "dead-letters", "show"}, {"config"}} {
		got := runCommand(t, "", args...)
		require.Equal(t, exitDone, got.code, got.stderr)
		require.Contains(t, got.stdout, "Usage:")
	}
}
