package bench

import (
	"os"
	"strings"
	"time"
)

// usage is what a process has used: CPU since its start, memory in bytes.
type usage struct {
	cpu       time.Duration
	rss, peak int64
}

// Use is what one process, or PostgreSQL with all of its own, used during a
// measurement.
type Use struct {
	Process    string  `json:"process"`
	CPUSeconds float64 `json:"cpuSeconds"`
	// RSSMiB is the most that was resident. PostgreSQL's is what its processes
	// held at the end, shared memory counted once.
	RSSMiB float64 `json:"rssMiB"`
}

// observed is a process that is watched.
type observed struct {
	name string
	pid  int
	tree bool
}

func (o observed) usage() (usage, bool) {
	if o.tree {
		return treeUsage(o.pid)
	}
	return usageOf(o.pid)
}

// meter adds up what processes use while it runs.
type meter struct {
	of     []observed
	before []usage
	cpu    []time.Duration
}

func newMeter(of ...observed) *meter {
	m := &meter{of: of, before: make([]usage, len(of)), cpu: make([]time.Duration, len(of))}
	for _, o := range of {
		if !o.tree {
			forgetPeak(o.pid)
		}
	}
	return m
}

func (m *meter) start() {
	for i, o := range m.of {
		m.before[i], _ = o.usage()
	}
}

func (m *meter) stop() {
	for i, o := range m.of {
		if now, ok := o.usage(); ok {
			m.cpu[i] += now.cpu - m.before[i].cpu
		}
	}
}

// uses is the sum of all runs. It is empty where the system does not tell.
func (m *meter) uses() []Use {
	var all []Use
	for i, o := range m.of {
		u, ok := o.usage()
		if !ok {
			continue
		}
		all = append(all, Use{Process: o.name, CPUSeconds: m.cpu[i].Seconds(), RSSMiB: float64(u.peak) / (1 << 20)})
	}
	return all
}

// isWorker tells by the name.
func isWorker(name string) bool { return strings.HasPrefix(name, "worker-") }

// self is this process: it makes the load and, in the workloads of data nodes,
// does the work.
func self() observed { return observed{name: "bench", pid: os.Getpid()} }
