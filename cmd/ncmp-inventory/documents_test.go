package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/store/storetest"
)

// documents are the README and what stands in docs, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{readme: readRepo(t, readme)}
	docs, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, d := range docs {
		name := "docs/" + filepath.Base(d)
		all[name] = readRepo(t, name)
	}
	return all
}

// words splits a command line as a shell would, as far as documents need it.
func words(line string) []string {
	var out []string
	for _, m := range regexp.MustCompile(`(?:[^\s"']|"[^"]*"|'[^']*')+`).FindAllString(line, -1) {
		out = append(out, strings.NewReplacer(`"`, "", `'`, "").Replace(m))
	}
	return out
}

// ofProgram cuts the program's own name off a command line.
func ofProgram(line string) (args []string, ok bool) {
	for _, start := range []string{"./ncmp-inventory ", "ncmp-inventory ", "/ncmp-inventory ", "go run ./cmd/ncmp-inventory "} {
		if rest, ok := strings.CutPrefix(line, start); ok {
			return words(rest), true
		}
	}
	return nil, false
}

// Every command of the program in the documents exists and takes the flags and
// arguments that are shown. What the two commands at the top do is checked by CI.
func TestDocumentedCommandsAreAccepted(t *testing.T) {
	t.Parallel()
	known := 0
	for name, text := range documents(t) {
		for _, line := range consoleLines(text) {
			if args, ok := ofProgram(line); ok {
				known++
				requireAccepted(t, name, args)
			}
		}
	}
	require.Greater(t, known, 40)
}

func requireAccepted(t *testing.T, document string, args []string) {
	t.Helper()
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
	root := newRoot(a)
	cmd, rest, err := root.Find(args)
	require.NoError(t, err, "%s: %s", document, args)
	require.NotSame(t, root, cmd, "%s: %s", document, args)
	require.NoError(t, cmd.ParseFlags(rest), "%s: %s", document, args)
	require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), "%s: %s", document, args)
	require.NoError(t, cmd.ValidateRequiredFlags(), "%s: %s", document, args)
	a.file = "" // it is the reader's
	_, err = a.load()
	require.NoError(t, err, "%s: %s", document, args)
}

// otherCommands are the forms of what a document asks its reader to type besides
// the program itself, and what has to be true of each.
var otherCommands = map[string]func(t *testing.T, m []string){
	`^go test \./\.\.\.$`: func(*testing.T, []string) {},
	`^CGO_ENABLED=0 go build -o ncmp-inventory \./(\S+)$`: func(t *testing.T, m []string) {
		require.DirExists(t, "../../"+m[1])
	},
	`^export (\w+)=(\S+)$`: func(t *testing.T, m []string) {
		i := slices.IndexFunc(config.Keys, func(k config.Key) bool { return k.Env() == m[1] })
		require.GreaterOrEqual(t, i, 0, m[1])
		_, err := config.Load(config.Input{Environ: []string{m[1] + "=" + m[2]}})
		require.NoError(t, err)
	},
	`^curl -s (?:-X (\w+) -d '(.*?)' )?(?:-o \S+ )?http://localhost:(8080|6060)(/\S+)$`: func(t *testing.T, m []string) {
		level := zap.NewAtomicLevel()
		h := map[string]http.Handler{"8080": newOpsHandler(nil, prometheus.NewRegistry()), "6060": newDebugHandler(&level)}[m[3]]
		method := m[1]
		if method == "" {
			method = http.MethodGet
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, m[4], strings.NewReader(m[2])))
		require.Equal(t, http.StatusOK, w.Code, m[0])
	},
	// The chart's resources are named after the release, which is called like the program.
	`^kubectl exec deploy/ncmp-inventory -- (/ncmp-inventory .* --config (\S+))$`: func(t *testing.T, m []string) {
		require.Contains(t, readRepo(t, "deploy/helm/ncmp-inventory/templates/deployment.yaml"), "--config, "+m[2])
		require.Contains(t, readRepo(t, "deploy/Dockerfile"), `ENTRYPOINT ["/ncmp-inventory"]`)
		args, ok := ofProgram(m[1])
		require.True(t, ok)
		requireAccepted(t, m[0], args)
	},
	`^kubectl (?:rollout restart deployment|logs deploy)/ncmp-inventory(?: --previous)?$`: func(t *testing.T, _ []string) {
		require.Contains(t, readRepo(t, "deploy/helm/ncmp-inventory/templates/deployment.yaml"), "kind: Deployment")
	},
	`^helm upgrade ncmp-inventory (\S+)(?: --reuse-values)?$`: func(t *testing.T, m []string) {
		require.FileExists(t, "../../"+m[1]+"/Chart.yaml")
	},
	`^pg_dump --format=custom --file=\S+ "\$(\w+)"$`: func(t *testing.T, m []string) { requireVariable(t, m[1]) },
	`^pg_restore --dbname="\$(\w+)" \S+$`:            func(t *testing.T, m []string) { requireVariable(t, m[1]) },
}

func requireVariable(t *testing.T, name string) {
	t.Helper()
	require.True(t, slices.ContainsFunc(config.Keys, func(k config.Key) bool { return k.Env() == name }), name)
}

func TestOtherDocumentedCommandsAreOfAKnownForm(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for name, text := range documents(t) {
		for _, line := range consoleLines(text) {
			if _, ok := ofProgram(line); ok {
				continue
			}
			matched := false
			for form, check := range otherCommands {
				if m := regexp.MustCompile(form).FindStringSubmatch(line); m != nil {
					matched, used[form] = true, true
					check(t, m)
				}
			}
			require.True(t, matched, "%s: %s", name, line)
		}
	}
	require.Len(t, used, len(otherCommands), "no form is left over")
}

// prose is a document without its blocks.
func prose(text string) string {
	return regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "")
}

// What stands between backticks and looks like a command, a key or a metric is one.
func TestDocumentsNameWhatThereIs(t *testing.T) {
	t.Parallel()
	code := regexp.MustCompile("`([^`\n]+)`")
	key := regexp.MustCompile(`^((?:kafka|database|outbox|batch|limits|dead-letters|history|lcm|http|trace|log)\.[a-z.-]*[a-z])(?:: (\S+))?$`)
	metric := regexp.MustCompile(`^(ncmp_inventory_\w+?)(?:\{\w+="([^"]+)"\})?$`)
	metrics := readRepo(t, "cmd/ncmp-inventory/"+metricsFile)
	for name, text := range documents(t) {
		for _, m := range code.FindAllStringSubmatch(prose(text), -1) {
			if k := key.FindStringSubmatch(m[1]); k != nil {
				requireKey(t, name, k[1], k[2])
			}
			if n := metric.FindStringSubmatch(m[1]); n != nil {
				require.Contains(t, "\n"+metrics, "\n"+n[1]+"\t", "%s: %s", name, m[1])
			}
			args := words(m[1])
			cmd, rest, err := newRoot(&app{}).Find(args)
			if err != nil || !cmd.HasParent() || len(rest) == len(args) {
				continue
			}
			requireFlags(t, name, m[1], cmd, rest)
		}
	}
}

func requireFlags(t *testing.T, name, text string, cmd *cobra.Command, rest []string) {
	t.Helper()
	for i, arg := range rest {
		if flag, ok := strings.CutPrefix(arg, "--"); ok {
			flag, _, _ = strings.Cut(flag, "=")
			require.True(t, cmd.Flags().Lookup(flag) != nil || cmd.InheritedFlags().Lookup(flag) != nil, "%s: %s: %s", name, text, rest[i])
		}
	}
}

// requireKey wants a key, or what several keys begin with, and a value for it.
func requireKey(t *testing.T, name, key, value string) {
	t.Helper()
	for _, k := range config.Keys {
		if k.Name == key {
			if value != "" {
				_, err := config.Load(config.Input{Flags: map[string]string{key: value}})
				require.NoError(t, err, name)
			}
			return
		}
	}
	require.True(t, value == "" && slices.ContainsFunc(config.Keys, func(k config.Key) bool { return strings.HasPrefix(k.Name, key+".") }), "%s: there is no key %s", name, key)
}

// Links within the repository lead somewhere, and so do their anchors.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := documents(t)
	anchors := map[string]map[string]bool{}
	notInAnchors := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for name, text := range all {
		anchors[name] = map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, ""), -1) {
			anchors[name][strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
		}
	}
	for name, text := range all {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(prose(text), -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			file := name
			if to != "" {
				file = path.Join(path.Dir(name), to)
				_, err := os.Stat("../../" + file)
				require.NoError(t, err, "%s: %s", name, m[1])
			}
			if anchor != "" {
				require.True(t, anchors[file][anchor], "%s: %s", name, m[1])
			}
		}
	}
}

// Statements that a document shows run on the worker's tables.
func TestDocumentedStatementsRun(t *testing.T) {
	t.Parallel()
	pool := storetest.Open(t).Pool(t)
	n := 0
	for name, text := range documents(t) {
		for _, m := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(text, -1) {
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), m[1])
			require.NoError(t, err, "%s: %s", name, m[1])
			require.NoError(t, tx.Rollback(t.Context()))
			n++
		}
	}
	require.Positive(t, n)
}

// The way from NCMP to the workers, on a database with all that NCMP lets in: each
// command of the document does what it is shown for.
func TestTakeOverAsDocumented(t *testing.T) {
	t.Parallel()
	s := newSystem(t, true)
	s.db = storetest.OpenEmpty(t)
	s.cfg.Database.URL = config.SecretOf(s.db.URL)
	for _, f := range []string{"cps.sql", "taken_over.sql"} {
		execute(t, s.db, readRepo(t, "store/testdata/"+f))
	}
	// The files name ids of their own.
	execute(t, s.db, `select setval('fragment_id_seq', (select max(id) / 100 * 100 + 100 from fragment))`)
	s.cfg.LCM.Events, s.cfg.LCM.LegacyHeaders = "ncmp", "java"
	file := filepath.Join(t.TempDir(), "handles.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"createdCmHandles":[{"cmHandle":"new-1"}]}`), 0o600))
	text := readRepo(t, "docs/migration-from-ncmp.md")
	var all strings.Builder
	for _, line := range consoleLines(text) {
		args, ok := ofProgram(line)
		if !ok {
			continue
		}
		if args[0] == "register" {
			s.start(t)
			s.awaitReady(t)
			args[1] = file
		}
		got := s.run(t, "", args...)
		require.Equal(t, exitDone, got.code, "%s\n%s\n%s", line, got.stdout, got.stderr)
		all.WriteString(got.stdout)
	}
	said := all.String()
	for _, notice := range regexp.MustCompile("(?m)^\\| (`[a-z-]+`(?:, `[a-z-]+`)*) \\|").FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(strings.ReplaceAll(notice[1], "`", ""), ", ") {
			require.Regexp(t, "(?m)^notice +"+name+" ", said)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^(?:notice|wrong) +([a-z-]+) ").FindAllStringSubmatch(said, -1) {
		require.Contains(t, text, "`"+m[1]+"`", "what verify lists is explained")
	}
}
