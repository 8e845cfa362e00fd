package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
)

const mask = "***"

// Secret is a value that cannot be printed. It is given itself or as the name
// of a file that holds it.
type Secret struct {
	value string
	file  string
	// show makes a printable form of the value, for secrets of which only a
	// part is secret; nil shows the mask.
	show func(string) string
}

// SecretOf makes a Secret of a value at hand.
func SecretOf(value string) Secret { return Secret{value: value} }

// SecretIn makes a Secret that is read from a file.
func SecretIn(file string) Secret { return Secret{file: file} }

// IsSet reports whether there is a secret at all.
func (s Secret) IsSet() bool { return s.value != "" || s.file != "" }

// FromFile reports whether the secret is read from a file and may change.
func (s Secret) FromFile() bool { return s.file != "" }

// Reveal gives the secret. A file is read on every call, without the line end
// that editors leave behind: that is how rotated secrets get in.
func (s Secret) Reveal() (string, error) {
	if s.file == "" {
		return s.value, nil
	}
	b, err := os.ReadFile(s.file)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	v := strings.TrimRight(string(b), "\r\n")
	if v == "" {
		return "", fmt.Errorf("read secret: %w", &os.PathError{Op: "read", Path: s.file, Err: errors.New("the file is empty")})
	}
	return v, nil
}

// String is the masked form; an unset secret is "".
func (s Secret) String() string {
	if !s.IsSet() {
		return ""
	}
	if s.show == nil {
		return mask
	}
	v, err := s.Reveal()
	if err != nil {
		return mask
	}
	return s.show(v)
}

// Format masks the secret whatever the verb: %#v would otherwise go around
// String and print the fields.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText masks the secret in JSON and wherever else text is encoded.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML masks the secret.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// secretParameter finds the secret values of a libpq keyword/value string.
var secretParameter = regexp.MustCompile(`(?i)\b(password|sslpassword)\s*=\s*('(?:[^'\\]|\\.)*'|\S+)`)

// showDSN masks what is secret in a libpq URL or DSN and shows the rest: where
// the worker connects to is what one looks for in a configuration. What does
// not parse is masked as a whole.
func showDSN(dsn string) string {
	if !strings.Contains(dsn, "://") {
		return secretParameter.ReplaceAllString(dsn, "$1="+mask)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return mask
	}
	q := u.Query()
	for name := range q {
		if l := strings.ToLower(name); l == "password" || l == "sslpassword" {
			q.Set(name, mask)
		}
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), url.QueryEscape(mask), mask)
	return strings.Replace(u.Redacted(), ":xxxxx@", ":"+mask+"@", 1)
}
