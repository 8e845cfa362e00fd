package bench

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// Sweep measures workloads once for each value of a setting: a key of the
// configuration, workers, connections, partitions or per-event, or, behind
// "postgresql.", a setting of the embedded server.
type Sweep struct {
	Key    string
	Values []string
}

// ParseSweep reads KEY=VALUE,VALUE….
func ParseSweep(text string) (Sweep, error) {
	key, list, ok := strings.Cut(text, "=")
	if !ok || key == "" || list == "" {
		return Sweep{}, fmt.Errorf("%w: %q is not KEY=VALUE,VALUE", ErrUsage, text)
	}
	return Sweep{Key: key, Values: strings.Split(list, ",")}, nil
}

// with is the configuration with the setting at a value.
func (s Sweep) with(c Config, value string) (Config, error) {
	own := map[string]*int{"workers": &c.Workers, "connections": &c.Connections, "per-event": &c.PerEvent, "partitions": &c.Partitions, "database.max-connections": &c.Connections}
	if field, ok := own[s.Key]; ok {
		n, err := strconv.Atoi(value)
		if err != nil {
			return c, fmt.Errorf("%w: %s is %q", ErrUsage, s.Key, value)
		}
		*field = n
		return c, nil
	}
	if name, ok := strings.CutPrefix(s.Key, "postgresql."); ok {
		c.PostgreSQL = maps.Clone(c.PostgreSQL)
		if c.PostgreSQL == nil {
			c.PostgreSQL = map[string]string{}
		}
		c.PostgreSQL[name] = value
		return c, nil
	}
	if s.Key == "history.enabled" {
		c.History = value != "off" && value != "false"
	}
	c.WorkerFlags = append(append([]string(nil), c.WorkerFlags...), "--"+s.Key, value)
	return c, nil
}

// RunSweep runs workloads for each value and emits one result a workload, whose
// cases are the values. At the top stands the last value.
func RunSweep(ctx context.Context, c Config, names []string, s Sweep, emit func(Result) error) error {
	byName := map[string][]Result{}
	var order []string
	for i, value := range s.Values {
		now, err := s.with(c, value)
		if err != nil {
			return err
		}
		err = Run(ctx, now, names, func(r Result) error {
			if _, known := byName[r.Workload]; !known {
				order = append(order, r.Workload)
			}
			r.Cases, r.Case, r.at = nil, s.Key+"="+value, number(value, i)
			byName[r.Workload] = append(byName[r.Workload], r)
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s=%s: %w", s.Key, value, err)
		}
	}
	for _, name := range order {
		all := byName[name]
		top := all[len(all)-1]
		top.Case = ""
		for i := range all {
			all[i].Workload, all[i].Published = "", ""
		}
		top.Cases = all
		if err := emit(top); err != nil {
			return err
		}
	}
	return nil
}

// number is a value's place on an axis: itself, or its place in the list.
func number(value string, place int) float64 {
	text := strings.TrimRight(value, "kKMGiB")
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return float64(place)
	}
	for suffix, factor := range map[string]float64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if strings.HasSuffix(value, suffix) {
			return n * factor
		}
	}
	return n
}
