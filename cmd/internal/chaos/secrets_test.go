package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// secretsOf is what may be told to nobody: the private values of the stream and
// the passwords of the databases that URLs name.
func secretsOf(urls ...string) ([]string, error) {
	all := []string{secret}
	for _, text := range urls {
		if text == "" {
			continue
		}
		c, err := pgx.ParseConfig(text)
		if err != nil || len(c.Password) < 8 {
			return nil, errors.New("a database's URL has no password to look for")
		}
		if !slices.Contains(all, c.Password) {
			all = append(all, c.Password)
		}
	}
	return all, nil
}

// noSecretTold looks for secrets in all that workers and tools said and sent.
func (w *world) noSecretTold(h *History) error {
	secrets, err := secretsOf(w.direct, w.proxied, w.both)
	if err != nil {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(w.dir, "worker-*.log"))
	if err != nil {
		return err
	}
	if len(logs) == 0 {
		return errors.New("no worker has a log")
	}
	var found []error
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		found = append(found, leak(secrets, "the log "+name, text))
	}
	return errors.Join(append(found, leaks(secrets, h)...)...)
}

// leaks are the records that tell a secret. A dead letter holds its record as it
// came, so only what was added to it is looked at.
func leaks(secrets []string, h *History) []error {
	var found []error
	for what, records := range map[string][]Record{"LCM event": h.LCM, "inventory event": h.Inventory, "outcome": h.Outcomes, "dead letter": h.DeadLetters} {
		for i := range records {
			r := &records[i]
			at := fmt.Sprintf("%s at %d/%d", what, r.Partition, r.Offset)
			if what != "dead letter" {
				found = append(found, leak(secrets, at, r.Key), leak(secrets, at, r.Value))
			}
			for _, header := range r.Headers {
				if what != "dead letter" || strings.HasPrefix(header.Key, "ncmp_") {
					found = append(found, leak(secrets, at+", header "+header.Key, header.Value))
				}
			}
		}
	}
	return slices.DeleteFunc(found, func(err error) bool { return err == nil })
}

func leak(secrets []string, where string, text []byte) error {
	for i, s := range secrets {
		if bytes.Contains(text, []byte(s)) {
			return fmt.Errorf("%s holds secret %d", where, i) // not the secret itself
		}
	}
	return nil
}

// That the search finds what it looks for, and nothing else.
func TestSecretsAreFound(t *testing.T) {
	t.Parallel()
	secrets, err := secretsOf("postgres://u:p4ssw0rd-of-u@h/d", "")
	require.NoError(t, err)
	for _, text := range []string{secret + "7", "p4ssw0rd-of-u"} {
		plain := Record{Key: []byte("k"), Value: []byte(`"` + text + `"`)}
		added := Record{Headers: []Header{{"ncmp_text", []byte("at " + text)}}}
		require.Len(t, leaks(secrets, &History{LCM: []Record{plain}, Inventory: []Record{plain}, Outcomes: []Record{plain, added}, DeadLetters: []Record{plain, added}}), 5)
		require.Error(t, leak(secrets, "log", []byte("pool: "+text+" refused")))
	}
	require.Empty(t, leaks(secrets, &History{LCM: []Record{{Value: []byte("{}")}}}))
	_, err = secretsOf("postgres://u@h/d")
	require.Error(t, err)
}
