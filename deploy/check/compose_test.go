package check

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// project loads a compose file as Compose does.
func project(t *testing.T, path string) *types.Project {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{filepath.Join(root, path)}, cli.WithResolvedPaths(true))
	require.NoError(t, err)
	p, err := o.LoadProject(t.Context())
	require.NoError(t, err)
	return p
}

func TestComposeFilesLoad(t *testing.T) {
	t.Parallel()
	for path, services := range map[string][]string{
		"deploy/compose.small.yaml": {"kafka", "postgres", "topics", "worker"},
		"deploy/compose.yaml":       {"grafana", "kafka", "postgres", "prometheus", "topics", "worker"},
	} {
		p := project(t, path)
		require.Equal(t, "ncmp-inventory", p.Name)
		require.ElementsMatch(t, services, p.ServiceNames())
		for name, s := range p.Services {
			if s.Build != nil {
				require.FileExists(t, filepath.Join(s.Build.Context, s.Build.Dockerfile))
			} else {
				require.Regexp(t, `:v?\d+(\.\d+)*$`, s.Image, "%s: a version that stays", name)
			}
			for _, port := range s.Ports {
				require.Equal(t, "127.0.0.1", port.HostIP, "%s is for this machine only", name)
			}
			for dependency, d := range s.DependsOn {
				if d.Condition == types.ServiceConditionHealthy {
					require.NotNil(t, p.Services[dependency].HealthCheck, "%s waits for %s", name, dependency)
				}
			}
			for _, c := range s.Configs {
				require.FileExists(t, p.Configs[c.Source].File, name)
			}
		}
	}
}

// Prometheus scrapes the workers, Grafana asks Prometheus, and both find the
// files that they are given.
func TestWatchersAreWired(t *testing.T) {
	t.Parallel()
	p := project(t, "deploy/compose.yaml")
	target := func(service, source string) string {
		for _, c := range p.Services[service].Configs {
			if c.Source == source {
				return c.Target
			}
		}
		require.Fail(t, "no config", "%s of %s", source, service)
		return ""
	}
	content := func(config string, into any) {
		b, err := os.ReadFile(p.Configs[config].File)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(b, into))
	}
	var prometheus struct {
		Rules  []string `json:"rule_files"`
		Scrape []struct {
			DNS []struct {
				Names []string
				Port  int
			} `json:"dns_sd_configs"`
		} `json:"scrape_configs"`
	}
	content("prometheus", &prometheus)
	dir := filepath.Dir(target("prometheus", "prometheus"))
	require.Equal(t, target("prometheus", "rules"), filepath.Join(dir, prometheus.Rules[0]))
	dns := prometheus.Scrape[0].DNS[0]
	require.Equal(t, []string{"worker"}, dns.Names)
	require.Contains(t, p.Services["worker"].Expose, itoa(int32(dns.Port)))

	var sources struct {
		Datasources []struct{ Name, UID, Type, URL string }
	}
	content("datasource", &sources)
	require.Equal(t, "http://prometheus:9090", sources.Datasources[0].URL)
	require.Equal(t, uint32(9090), p.Services["prometheus"].Ports[0].Target)

	var boards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	content("dashboards", &boards)
	board := target("grafana", "dashboard")
	require.Equal(t, filepath.Dir(board), boards.Providers[0].Options.Path)
	require.Equal(t, board, *p.Services["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
}

// The rules are tested with the Prometheus that runs them.
func TestPrometheusIsTheOneOfTheTests(t *testing.T) {
	t.Parallel()
	m := regexp.MustCompile(`github\.com/prometheus/prometheus v0\.(\d+)\.(\d+)`).FindSubmatch(read(t, "deploy/check/go.mod"))
	require.Len(t, m, 3)
	// Version 3.16.0 is module version 0.316.0.
	minor := string(m[1])[1:]
	require.Equal(t, "prom/prometheus:v3."+minor+"."+string(m[2]), project(t, "deploy/compose.yaml").Services["prometheus"].Image)
}
