package check

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// effective is a configuration by key, as text.
type effective map[string]string

func (e effective) duration(t *testing.T, key string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(e[key])
	require.NoError(t, err, "%s is %q", key, e[key])
	return d
}

// mounted lists the secret files of the pod, and makes a directory for them.
func (r *release) mounted(t *testing.T) (dir string, files []string) {
	t.Helper()
	require.Len(t, r.worker.VolumeMounts, 1)
	require.Equal(t, "/etc/ncmp-inventory", r.worker.VolumeMounts[0].MountPath)
	volumes := r.deployment.Spec.Template.Spec.Volumes
	require.Len(t, volumes, 1)
	config := false
	for _, s := range volumes[0].Projected.Sources {
		if s.ConfigMap != nil {
			require.Equal(t, r.config.Name, s.ConfigMap.Name)
			config = true
			continue
		}
		require.NotEmpty(t, s.Secret.Name)
		for _, item := range s.Secret.Items {
			require.NotEmpty(t, item.Key)
			files = append(files, item.Path)
		}
	}
	require.True(t, config)
	return t.TempDir(), files
}

// scaledObject is KEDA's, as much of it as the chart uses. Its Go module brings
// all of KEDA.
type scaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ScaleTargetRef  struct{ Name string } `json:"scaleTargetRef"`
		MinReplicaCount int                   `json:"minReplicaCount"`
		MaxReplicaCount int                   `json:"maxReplicaCount"`
		PollingInterval int                   `json:"pollingInterval"`
		Advanced        struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior struct {
					ScaleDown struct {
						StabilizationWindowSeconds int `json:"stabilizationWindowSeconds"`
						Policies                   []struct {
							Type          string `json:"type"`
							Value         int    `json:"value"`
							PeriodSeconds int    `json:"periodSeconds"`
						} `json:"policies"`
					} `json:"scaleDown"`
				} `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []struct {
			Type     string `json:"type"`
			Metadata struct {
				BootstrapServers     string `json:"bootstrapServers"`
				ConsumerGroup        string `json:"consumerGroup"`
				Topic                string `json:"topic"`
				LagThreshold         string `json:"lagThreshold"`
				OffsetResetPolicy    string `json:"offsetResetPolicy"`
				ExcludePersistentLag string `json:"excludePersistentLag"`
				AllowIdleConsumers   string `json:"allowIdleConsumers"`
			} `json:"metadata"`
			AuthenticationRef *struct{ Name string } `json:"authenticationRef"`
		} `json:"triggers"`
	} `json:"spec"`
}

// check holds it against the deployment and the worker's own configuration.
func (s *scaledObject) check(t *testing.T, r *release, e effective) {
	t.Helper()
	require.Equal(t, "keda.sh/v1alpha1", s.APIVersion)
	require.Equal(t, "ScaledObject", s.Kind)
	require.Equal(t, r.deployment.Name, s.Spec.ScaleTargetRef.Name)
	require.Positive(t, s.Spec.MinReplicaCount)
	require.GreaterOrEqual(t, s.Spec.MaxReplicaCount, s.Spec.MinReplicaCount)
	topics := map[string]bool{}
	for _, trigger := range s.Spec.Triggers {
		m := trigger.Metadata
		require.Equal(t, "kafka", trigger.Type)
		require.Equal(t, e["kafka.group"], m.ConsumerGroup)
		require.Equal(t, e["kafka.start"], m.OffsetResetPolicy)
		require.Contains(t, m.BootstrapServers, "kafka-0.kafka:9092")
		n, err := strconv.Atoi(m.LagThreshold)
		require.NoError(t, err)
		require.Positive(t, n)
		topics[m.Topic] = true
	}
	for _, key := range []string{"kafka.topics.registrations", "kafka.topics.state-changes"} {
		for _, name := range strings.FieldsFunc(e[key], func(c rune) bool { return strings.ContainsRune(`[]", `, c) }) {
			require.True(t, topics[name], "%s of %s scales nothing: %v", name, key, topics)
		}
	}
}

func labelSet(m map[string]string) labels.Set { return m }

func itoa(n int32) string { return strconv.Itoa(int(n)) }

func toJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
