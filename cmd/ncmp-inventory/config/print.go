package config

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Source says where a key's value came from.
func (l *Loaded) Source(key string) string {
	for _, name := range []string{key, key + fileSuffix} {
		if s, ok := l.sources[name]; ok {
			return s
		}
	}
	return "default"
}

// Explain adds to an error about the value of a key, or to several that are
// joined, where that value came from.
func (l *Loaded) Explain(err error) {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case *Error:
		if e.Key != "" && e.Source == "" {
			e.Source = l.Source(e.Key)
		}
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			l.Explain(one)
		}
	case interface{ Unwrap() error }:
		l.Explain(e.Unwrap())
	}
}

// shown are the keys worth printing: a -file variant only when it is in use.
func (l *Loaded) shown() []Key {
	var keys []Key
	for _, k := range Keys {
		if _, given := l.sources[k.Name]; k.File && !given {
			continue
		}
		keys = append(keys, k)
	}
	return keys
}

// WriteYAML prints the effective configuration as a file that could be read
// back (but for masked secrets), each value with its source behind it.
func (l *Loaded) WriteYAML(w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range l.shown() {
		at, parts := root, strings.Split(k.Name, ".")
		for _, part := range parts[:len(parts)-1] {
			at = section(at, part)
		}
		v := &yaml.Node{}
		if err := v.Encode(k.show(&l.Config)); err != nil {
			return fmt.Errorf("print %s: %w", k.Name, err)
		}
		v.Style |= yaml.FlowStyle
		v.LineComment = l.Source(k.Name)
		at.Content = append(at.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: parts[len(parts)-1]}, v)
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	return enc.Close()
}

func section(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	s := &yaml.Node{Kind: yaml.MappingNode}
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, s)
	return s
}

// WriteJSON prints one object: key to value and source.
func (l *Loaded) WriteJSON(w io.Writer) error {
	type entry struct {
		Value  any    `json:"value"`
		Source string `json:"source"`
	}
	all := map[string]entry{}
	for _, k := range l.shown() {
		v := k.show(&l.Config)
		if list, ok := v.([]string); ok && list == nil {
			v = []string{}
		}
		all[k.Name] = entry{v, l.Source(k.Name)}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(all)
}

// WriteMarkdown prints the table of all keys for the documentation.
func WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| key | type | default | what it does |\n|---|---|---|---|\n")
	for _, k := range Keys {
		def := "–"
		if k.Default != "" {
			def = "`" + k.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, strings.ReplaceAll(k.Type, "|", `\|`), def, k.Doc)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
