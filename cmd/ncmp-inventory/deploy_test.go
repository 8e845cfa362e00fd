package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"ncmp-inventory/cmd/ncmp-inventory/config"
)

// readRepo reads a file by its path from the top of the repository.
func readRepo(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile("../../" + path)
	require.NoError(t, err)
	return string(b)
}

// composeFile is as much of a compose file as the checks need.
type composeFile struct {
	Services map[string]struct {
		Image       string
		Environment map[string]string
		Command     []string
		Volumes     []string
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
		Build       struct{ Context, Dockerfile string }
		Grace       string `yaml:"stop_grace_period"`
	}
	Volumes map[string]any
}

func TestComposeFileFitsTheWorker(t *testing.T) {
	t.Parallel()
	var c composeFile
	require.NoError(t, yaml.Unmarshal([]byte(readRepo(t, "deploy/compose.small.yaml")), &c))
	worker := c.Services["worker"]

	var environ []string
	for k, v := range worker.Environment {
		environ = append(environ, k+"="+v)
	}
	loaded, err := config.Load(config.Input{Environ: environ})
	require.NoError(t, err)
	require.NoError(t, loaded.Require("kafka.brokers", "database.url"))
	require.Contains(t, c.Services["kafka"].Environment["KAFKA_ADVERTISED_LISTENERS"],
		"PLAINTEXT://"+loaded.Kafka.Brokers[0], "the worker asks where the broker says it is")
	postgres := c.Services["postgres"].Environment
	url, err := loaded.Database.URL.Reveal()
	require.NoError(t, err)
	require.Equal(t, "postgres://"+postgres["POSTGRES_USER"]+":"+postgres["POSTGRES_PASSWORD"]+
		"@postgres:5432/"+postgres["POSTGRES_DB"], url)

	grace, err := time.ParseDuration(worker.Grace)
	require.NoError(t, err)
	require.Greater(t, grace, loaded.Drain, "a worker may drain before it is killed")

	topics := loaded.Kafka.Topics
	want := append(topics.Inputs(), topics.LCMEvents, topics.InventoryEvents, topics.Outcomes, topics.DeadLetters)
	var got []string
	for _, m := range regexp.MustCompile(`create ([a-z-]+) \d+`).FindAllStringSubmatch(c.Services["topics"].Command[0], -1) {
		got = append(got, m[1])
	}
	require.ElementsMatch(t, want, got, "every topic is created")
	require.Equal(t, c.Services["kafka"].Image, c.Services["topics"].Image)
	require.Equal(t, "deploy/Dockerfile", worker.Build.Dockerfile)

	for name, s := range c.Services {
		for dependency := range s.DependsOn {
			require.Contains(t, c.Services, dependency, name)
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			require.Contains(t, slices.Collect(maps.Keys(c.Volumes)), volume, name)
		}
	}
}

// The image is built from this module by the Go version that it asks for, and
// the Kafka of the tests is the Kafka of the compose file.
func TestVersionsAgree(t *testing.T) {
	t.Parallel()
	find := func(path, pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(readRepo(t, path))
		require.Len(t, m, 2, "%s has no %s", path, pattern)
		return m[1]
	}
	require.Equal(t, find("go.mod", `(?m)^go (\d+\.\d+)`), find("deploy/Dockerfile", `golang:(\d+\.\d+) AS build`))
	require.Equal(t, find(".ci/kafka/pom.xml", `<kafka\.version>(.*)</kafka\.version>`),
		find("deploy/compose.small.yaml", `apache/kafka:(.*)`))
}

func TestDockerfileIsWhatItClaims(t *testing.T) {
	t.Parallel()
	known := regexp.MustCompile(`^(FROM|WORKDIR|COPY|RUN|ARG|USER|EXPOSE|STOPSIGNAL|ENTRYPOINT|CMD)\s+\S`)
	var last string
	text := strings.ReplaceAll(readRepo(t, "deploy/Dockerfile"), "\\\n", " ")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		require.Regexp(t, known, line)
		if strings.HasPrefix(line, "FROM ") {
			last = line
		}
	}
	require.Equal(t, "FROM scratch", last)
	require.Contains(t, text, "CGO_ENABLED=0")
	require.Regexp(t, `(?m)^USER 65532`, text, "not root")
	require.Contains(t, text, `ENTRYPOINT ["/ncmp-inventory"]`)
}
