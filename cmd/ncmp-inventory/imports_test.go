package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "ncmp-inventory"

// mayImport is the dependency rule: which of our packages each may import, not
// counting tests. The bottom holds the types that cross borders, and ports are
// declared by whoever calls them.
var mayImport = map[string][]string{
	"inventory":       nil,
	"schemas":         nil,
	"consumer":        {"inventory", "schemas"},
	"lcm":             {"inventory"},
	"store":           {"inventory"},
	"store/pgembed":   nil,
	"store/storetest": {"store", "store/pgembed"},
}

// mustNotSee are modules from outside that would carry knowledge across a border.
var mustNotSee = map[string][]string{
	"inventory":     {"github.com/segmentio/kafka-go", "github.com/jackc/pgx", "database/sql", "encoding/json", "github.com/go-json-experiment", "github.com/cloudevents", "go.opentelemetry.io"},
	"schemas":       {"github.com/segmentio/kafka-go", "github.com/jackc/pgx", "go.opentelemetry.io"},
	"consumer":      {"github.com/jackc/pgx", "database/sql", "go.opentelemetry.io"},
	"lcm":           {"github.com/jackc/pgx", "database/sql", "go.opentelemetry.io"},
	"store":         {"github.com/segmentio/kafka-go", "github.com/cloudevents", "go.opentelemetry.io"},
	"store/pgembed": {"github.com/segmentio/kafka-go"},
}

// testOnly are for tests and for what runs a whole system on one machine.
var testOnly = []string{"github.com/twmb/franz-go", "github.com/stretchr/testify", "go.uber.org/goleak", "pgregory.net/rapid", module + "/store/storetest"}

func TestPackagesImportOnlyWhatTheyMay(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"/...").Output()
	require.NoError(t, err)
	seen := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			require.NoError(t, err)
		}
		seen++
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(name, "cmd/") {
			continue
		}
		allowed, known := mayImport[name]
		require.True(t, known, "package %s has no line in the dependency rule", name)
		for _, imported := range p.Imports {
			if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
				require.Contains(t, allowed, ours, "%s imports %s", name, ours)
			}
			under := func(path string) bool { return imported == path || strings.HasPrefix(imported, path+"/") }
			require.False(t, slices.ContainsFunc(mustNotSee[name], under), "%s imports %s", name, imported)
			if name != "store/storetest" {
				require.False(t, slices.ContainsFunc(testOnly, under), "%s imports %s, which is for tests", name, imported)
			}
		}
	}
	require.GreaterOrEqual(t, seen, len(mayImport))
}
