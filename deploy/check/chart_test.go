package check

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"
)

const chartDir = root + "/deploy/helm/ncmp-inventory"

// valueSets are what the chart is rendered with: files of testdata/values.
func valueSets(t *testing.T) map[string]map[string]any {
	t.Helper()
	paths, err := filepath.Glob("testdata/values/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	sets := map[string]map[string]any{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		var values map[string]any
		require.NoError(t, yaml.UnmarshalStrict(b, &values), path)
		sets[strings.TrimSuffix(filepath.Base(path), ".yaml")] = values
	}
	return sets
}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	require.NoError(t, err)
	return c
}

// render gives the manifests of a release "lab" in namespace "net", by file.
func render(c *chart.Chart, values map[string]any) (map[string]string, error) {
	full, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: "lab", Namespace: "net", Revision: 1, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.RenderWithContext(context.Background(), c, full)
}

// release is what one set of values makes, each decoded strictly.
type release struct {
	objects    map[string]runtime.Object // by kind
	deployment *appsv1.Deployment
	worker     *corev1.Container
	config     *corev1.ConfigMap
	scaled     *scaledObject
	notes      string
}

var decoder = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, monitoringv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

func newRelease(t *testing.T, values map[string]any) *release {
	t.Helper()
	files, err := render(loadChart(t), values)
	require.NoError(t, err)
	r := &release{objects: map[string]runtime.Object{}}
	for name, text := range files {
		switch {
		case strings.HasSuffix(name, "NOTES.txt"):
			r.notes = text
			continue
		case strings.TrimSpace(text) == "":
			continue
		case strings.HasSuffix(name, "scaledobject.yaml"):
			r.scaled = &scaledObject{}
			require.NoError(t, yaml.UnmarshalStrict([]byte(text), r.scaled), text)
			continue
		}
		o, kind, err := decoder.Decode([]byte(text), nil, nil)
		require.NoError(t, err, "%s\n%s", name, text)
		if kind.Kind == "ConfigMap" && strings.HasSuffix(name, "dashboard.yaml") {
			r.objects["Dashboard"] = o
			continue
		}
		require.NotContains(t, r.objects, kind.Kind)
		r.objects[kind.Kind] = o
	}
	r.deployment = r.objects["Deployment"].(*appsv1.Deployment)
	r.worker = &r.deployment.Spec.Template.Spec.Containers[0]
	r.config = r.objects["ConfigMap"].(*corev1.ConfigMap)
	return r
}

// each renders every set of values.
func each(t *testing.T, check func(t *testing.T, name string, r *release)) {
	t.Helper()
	for name, values := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, name, newRelease(t, values))
		})
	}
}

func TestChartLints(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, lint.RunAll(chartDir, values, "net").Messages)
		})
	}
}

// The chart says what is missing before anything is installed.
func TestChartRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	minimal := string(read(t, "deploy/check/testdata/values/minimal.yaml"))
	for name, c := range map[string]struct{ values, want string }{
		"no broker":              {"secrets: {database: {name: db}}", "config.kafka.brokers"},
		"no database":            {"config: {kafka: {brokers: [\"k:9092\"]}}", "secrets.database.name"},
		"a value that is none":   {minimal + "\nreplica: 3", "replica"},
		"a broker behind a wall": {minimal + "\nnetworkPolicy: {kafkaPorts: [9093]}", "port 9092 of broker kafka-0.kafka:9092"},
		"a password in the open": {"config: {kafka: {brokers: [\"k:9092\"], sasl: {password: p}}}", "sasl"},
		"drain-timeout twice":    {"config: {drain-timeout: 5s, kafka: {brokers: [\"k:9092\"]}}", "config"},
		"a URL in the open":      {"config: {database: {url: \"postgres://u:p@h/d\"}, kafka: {brokers: [\"k:9092\"]}}", "database"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var values map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(c.values), &values))
			_, err := render(loadChart(t), values)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestPodIsConfined(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ string, r *release) {
		pod := r.deployment.Spec.Template.Spec
		require.True(t, *pod.SecurityContext.RunAsNonRoot)
		require.NotZero(t, *pod.SecurityContext.RunAsUser)
		require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
		require.False(t, *pod.AutomountServiceAccountToken)
		require.False(t, *pod.EnableServiceLinks, "its variables would look like the program's")
		require.Len(t, pod.Containers, 1)
		own := r.worker.SecurityContext
		require.True(t, *own.ReadOnlyRootFilesystem)
		require.False(t, *own.AllowPrivilegeEscalation)
		require.Equal(t, []corev1.Capability{"ALL"}, own.Capabilities.Drop)
		require.Empty(t, own.Capabilities.Add)
		for _, m := range r.worker.VolumeMounts {
			require.True(t, m.ReadOnly, m.Name)
			require.Empty(t, m.SubPath, "a file mounted so never changes")
		}
		// The user is that of the image.
		require.Contains(t, string(read(t, "deploy/Dockerfile")), "USER 65532:65532")
		require.Equal(t, int64(65532), *pod.SecurityContext.RunAsUser)
		memory := r.worker.Resources.Requests.Memory().Value()
		require.GreaterOrEqual(t, memory, int64(150<<20))
		require.Greater(t, r.worker.Resources.Limits.Memory().Value(), memory)
	})
}

func TestProbesAskWhatTheWorkerServes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, name string, r *release) {
		require.Equal(t, "/livez", r.worker.StartupProbe.HTTPGet.Path)
		require.Equal(t, "/livez", r.worker.LivenessProbe.HTTPGet.Path)
		require.Equal(t, "/readyz", r.worker.ReadinessProbe.HTTPGet.Path)
		config := r.effective(t)
		require.Len(t, r.worker.Ports, 1)
		port := r.worker.Ports[0]
		require.Regexp(t, `:`+itoa(port.ContainerPort)+`$`, config["http.address"])
		for _, p := range []*corev1.Probe{r.worker.StartupProbe, r.worker.LivenessProbe, r.worker.ReadinessProbe} {
			require.Equal(t, port.Name, p.HTTPGet.Port.String())
		}
		service := r.objects["Service"].(*corev1.Service)
		require.Equal(t, port.Name, service.Spec.Ports[0].TargetPort.String())
		require.True(t, service.Spec.PublishNotReadyAddresses, "what is not ready is to be watched")
		drain := config.duration(t, "drain-timeout")
		require.Greater(t, float64(*r.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds), drain.Seconds()+5)
	})
}

func TestSelectorsMeetThePods(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ string, r *release) {
		meets := func(s *metav1.LabelSelector, labels map[string]string) {
			t.Helper()
			selector, err := metav1.LabelSelectorAsSelector(s)
			require.NoError(t, err)
			require.False(t, selector.Empty())
			require.True(t, selector.Matches(labelSet(labels)), "%v %v", selector, labels)
		}
		pods := r.deployment.Spec.Template.Labels
		meets(r.deployment.Spec.Selector, pods)
		service := r.objects["Service"].(*corev1.Service)
		meets(metav1.SetAsLabelSelector(service.Spec.Selector), pods)
		for _, c := range r.deployment.Spec.Template.Spec.TopologySpreadConstraints {
			meets(c.LabelSelector, pods)
		}
		if b, ok := r.objects["PodDisruptionBudget"].(*policyv1.PodDisruptionBudget); ok {
			meets(b.Spec.Selector, pods)
			require.Equal(t, policyv1.AlwaysAllow, *b.Spec.UnhealthyPodEvictionPolicy)
		}
		if n, ok := r.objects["NetworkPolicy"].(*networkingv1.NetworkPolicy); ok {
			meets(&n.Spec.PodSelector, pods)
		}
		if m, ok := r.objects["ServiceMonitor"].(*monitoringv1.ServiceMonitor); ok {
			meets(&m.Spec.Selector, service.Labels)
			require.Equal(t, service.Spec.Ports[0].Name, m.Spec.Endpoints[0].Port)
			require.Equal(t, "/metrics", m.Spec.Endpoints[0].Path)
		}
		account := r.deployment.Spec.Template.Spec.ServiceAccountName
		if a, ok := r.objects["ServiceAccount"].(*corev1.ServiceAccount); ok {
			require.Equal(t, account, a.Name)
		} else {
			require.NotContains(t, account, "lab")
		}
	})
}

// What the pod mounts is what the configuration names, and secrets are only
// ever referred to.
func TestSecretsAreFilesByReference(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ string, r *release) {
		_, files := r.mounted(t)
		named := regexp.MustCompile(`/etc/ncmp-inventory/(secrets/\S+)`).FindAllStringSubmatch(r.config.Data["worker.yaml"], -1)
		require.NotEmpty(t, named)
		var want []string
		for _, m := range named {
			want = append(want, m[1])
		}
		require.ElementsMatch(t, want, files)
		require.NotContains(t, r.objects, "Secret")
		for _, e := range r.worker.Env {
			require.NotRegexp(t, `(?i)password|secret|_URL$`, e.Name)
		}
	})
}

func TestRulesAndDashboardComeAlong(t *testing.T) {
	t.Parallel()
	r := newRelease(t, valueSets(t)["full"])
	rule := r.objects["PrometheusRule"].(*monitoringv1.PrometheusRule)
	rules := 0
	for _, g := range rule.Spec.Groups {
		for _, one := range g.Rules {
			rules++
			require.Regexp(t, `^https://docs\.example/docs/operations\.md#[a-z]+$`, one.Annotations["runbook_url"])
		}
	}
	require.Equal(t, strings.Count(string(read(t, "deploy/prometheus/rules.yaml")), "- alert:"), rules)
	require.Equal(t, "yes", rule.Labels["prometheus"])
	board := r.objects["Dashboard"].(*corev1.ConfigMap)
	require.JSONEq(t, string(read(t, "deploy/grafana/ncmp-inventory.json")), board.Data["ncmp-inventory.json"])
}

func TestNotesNameTheReleasesOwn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ string, r *release) {
		require.Contains(t, r.notes, "deploy/"+r.deployment.Name)
		require.Contains(t, r.notes, "-n net")
		for _, m := range regexp.MustCompile(`-- /ncmp-inventory (.*)`).FindAllStringSubmatch(r.notes, -1) {
			program(t, append(strings.Fields(m[1]), "--help")...)
		}
	})
}

// effective is the configuration that the worker would run with, told by
// itself.
func (r *release) effective(t *testing.T) effective {
	t.Helper()
	dir, files := r.mounted(t)
	text := strings.ReplaceAll(r.config.Data["worker.yaml"], "/etc/ncmp-inventory", dir)
	for _, f := range files {
		path := filepath.Join(dir, f)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("postgres://u:p@h/d"), 0o600))
	}
	file := filepath.Join(dir, "worker.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	// The arguments are such as the worker knows.
	program(t, append(append([]string{}, r.worker.Args...), "--help")...)
	var shown map[string]struct{ Value any }
	require.NoError(t, json.Unmarshal([]byte(program(t, "config", "print", "--json", "--config", file)), &shown))
	e := effective{}
	for key, v := range shown {
		e[key] = strings.Trim(strings.ReplaceAll(toJSON(v.Value), dir, "/etc/ncmp-inventory"), `"`)
	}
	return e
}

func TestWorkerTakesItsConfiguration(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, name string, r *release) {
		e := r.effective(t)
		require.Contains(t, e["kafka.brokers"], "kafka-0.kafka:9092")
		require.Equal(t, "worker", r.worker.Args[0])
		if name == "full" {
			require.Equal(t, "64s", strings.Replace(e["drain-timeout"], "1m4s", "64s", 1))
			require.Equal(t, "SCRAM-SHA-512", e["kafka.sasl.mechanism"])
			require.Equal(t, "/etc/ncmp-inventory/secrets/kafka-tls.key", e["kafka.tls.key-file"])
		}
		if r.scaled != nil {
			r.scaled.check(t, r, e)
			require.Nil(t, r.deployment.Spec.Replicas, "the autoscaler decides")
		}
	})
}
