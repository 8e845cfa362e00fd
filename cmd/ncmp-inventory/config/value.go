package config

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// kind is how the text of a value becomes a T and back.
type kind[T any] struct {
	name  string // for docs and messages
	parse func(string) (T, error)
	// show is the form for print: a string, bool, int64 or []string.
	show func(T) any
}

func asText(s string) any { return s }

var textKind = kind[string]{"text", func(s string) (string, error) { return s, nil }, asText}

func splitList(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// brokersKind wants host:port, or a host, which gets Kafka's usual port.
var brokersKind = kind[[]string]{"list", func(s string) ([]string, error) {
	list := splitList(s)
	for i, b := range list {
		host, port, err := net.SplitHostPort(b)
		if err != nil {
			if strings.ContainsAny(b, ":/ ") {
				return nil, fmt.Errorf("%q is not host:port", b)
			}
			list[i] = net.JoinHostPort(b, "9092")
			continue
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
			return nil, fmt.Errorf("%q is not host:port", b)
		}
	}
	return list, nil
}, func(l []string) any { return l }}

var boolKind = kind[bool]{"boolean", func(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true", "on", "yes":
		return true, nil
	case "false", "off", "no":
		return false, nil
	}
	return false, errors.New("want on or off")
}, func(b bool) any { return b }}

func intKind(least, most int) kind[int] {
	return kind[int]{"number", func(s string) (int, error) {
		n, err := strconv.Atoi(strings.ReplaceAll(s, "_", ""))
		if err != nil {
			return 0, errors.New("want a whole number")
		}
		if n < least || n > most {
			return 0, fmt.Errorf("want %d to %d", least, most)
		}
		return n, nil
	}, func(n int) any { return int64(n) }}
}

func durationKind(least, most time.Duration) kind[time.Duration] {
	return kind[time.Duration]{"duration", func(s string) (time.Duration, error) {
		d, err := parseDuration(s)
		if err != nil {
			return 0, err
		}
		if d < least || d > most {
			return 0, fmt.Errorf("want %s to %s", showDuration(least), showDuration(most))
		}
		return d, nil
	}, func(d time.Duration) any { return showDuration(d) }}
}

const day = 24 * time.Hour

// parseDuration reads Go's form, and whole days, which Go has no unit for.
func parseDuration(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	if n, ok := strings.CutSuffix(s, "d"); ok {
		if days, err := strconv.ParseUint(n, 10, 16); err == nil {
			return time.Duration(days) * day, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("want a duration with its unit, for example 500ms, 10s, 5m or 30d")
	}
	return d, nil
}

func showDuration(d time.Duration) string {
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// sizeUnits runs from the longest suffix to the shortest, so that "MiB" is not
// taken for "B".
var sizeUnits = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1},
}

func sizeKind(least, most int64) kind[int64] {
	return kind[int64]{"size", func(s string) (int64, error) {
		for _, u := range sizeUnits {
			number, ok := strings.CutSuffix(s, u.suffix)
			if !ok {
				continue
			}
			n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
			if err != nil || n < 0 || n > math.MaxInt64/u.factor {
				break
			}
			if n *= u.factor; n < least || n > most {
				return 0, fmt.Errorf("want %s to %s", showSize(least), showSize(most))
			}
			return n, nil
		}
		return 0, errors.New("want a size, for example 65536, 512KiB or 64MiB")
	}, func(n int64) any { return showSize(n) }}
}

func showSize(n int64) string {
	for _, u := range []struct {
		suffix string
		factor int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.factor && n%u.factor == 0 {
			return strconv.FormatInt(n/u.factor, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}

func choiceKind(choices ...string) kind[string] {
	return kind[string]{strings.Join(choices, ", "), func(s string) (string, error) {
		for _, c := range choices {
			if strings.EqualFold(s, c) {
				return c, nil
			}
		}
		return "", fmt.Errorf("want one of %s", strings.Join(choices, ", "))
	}, asText}
}

// topicKind is Kafka's own rule and nothing stricter.
var topicKind = kind[string]{"topic", func(s string) (string, error) { return s, checkTopic(s) }, asText}

var topicsKind = kind[[]string]{"list of topics", func(s string) ([]string, error) {
	list := splitList(s)
	for _, t := range list {
		if err := checkTopic(t); err != nil {
			return nil, err
		}
	}
	return list, nil
}, func(l []string) any { return l }}

func checkTopic(name string) error {
	if name == "." || name == ".." || len(name) < 1 || len(name) > 249 ||
		strings.ContainsFunc(name, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
		}) {
		return fmt.Errorf("%q is no Kafka topic name: want 1 to 249 of letters, digits, '.', '_' and '-', but not '.' or '..'", name)
	}
	return nil
}

// addressKind is what net.Listen takes; "" listens nowhere.
var addressKind = kind[string]{"address", func(s string) (string, error) {
	if s == "" || strings.EqualFold(s, "off") {
		return "", nil
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", errors.New("want host:port or :port, or off")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", errors.New("want host:port or :port, or off")
	}
	return s, nil
}, asText}

var endpointKind = kind[string]{"URL", func(s string) (string, error) {
	u, err := url.Parse(s)
	if s != "" && (err != nil || !slices.Contains([]string{"http", "https"}, u.Scheme) || u.Host == "") {
		return "", errors.New("want an http or https URL")
	}
	if s != "" && u.User != nil {
		return "", errors.New("must not hold credentials")
	}
	return s, nil
}, asText}

var secretKind = kind[Secret]{"secret", func(s string) (Secret, error) { return SecretOf(s), nil }, func(s Secret) any { return s.String() }}

// dsnKind never repeats pgx's reason: it can quote the string.
var dsnKind = kind[Secret]{"libpq URL or DSN", func(s string) (Secret, error) {
	if _, err := pgconn.ParseConfig(s); err != nil {
		// A certificate that cannot be read is no fault of the form.
		if file := new(fs.PathError); errors.As(err, &file) {
			return Secret{}, file
		}
		return Secret{}, errors.New("want a libpq URL or DSN, for example postgres://user@host:5432/database")
	}
	return Secret{value: s, show: showDSN}, nil
}, func(s Secret) any { return s.String() }}
