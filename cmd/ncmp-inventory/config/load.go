package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ConfigEnv names the configuration file when no flag does.
const ConfigEnv = envPrefix + "CONFIG"

// Input is everything that configuration is read from.
type Input struct {
	File    string            // path of the YAML file, "" is none
	Flags   map[string]string // by key, only those given
	Environ []string          // as os.Environ has it
}

// Loaded is a configuration that knows where its values came from.
type Loaded struct {
	Config
	sources map[string]string // by key; absent is the default
}

// Error is a fault of the configuration. Key and Cause may be empty; Reason says
// all that Cause does.
type Error struct {
	Key, Source, Reason string
	Cause               error
}

func (e *Error) Unwrap() error { return e.Cause }

func (e *Error) Error() string {
	var b strings.Builder
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Reason)
	if e.Source != "" {
		b.WriteString(" (from " + e.Source + ")")
	}
	return b.String()
}

// setting is one value found in one layer.
type setting struct {
	text, source string
	layer        int
}

// The layers, from weak to strong.
const (
	layerDefault = iota
	layerFile
	layerEnv
	layerFlag
)

// loader gathers settings, the strongest layer winning, and all faults.
type loader struct {
	known map[string]*Key
	found map[string]setting
	errs  []error
}

// Load reads all layers. Its error joins one [*Error] for each fault.
func Load(in Input) (*Loaded, error) {
	l := &loader{known: map[string]*Key{}, found: map[string]setting{}}
	for i := range Keys {
		l.known[Keys[i].Name] = &Keys[i]
	}
	l.environ(in.Environ, &in.File)
	if in.File != "" {
		l.file(in.File)
	}
	for name, text := range in.Flags {
		l.put(name, setting{text, "flag --" + name, layerFlag})
	}
	out := &Loaded{sources: map[string]string{}}
	for i := range Keys {
		l.apply(out, &Keys[i])
	}
	if len(l.errs) == 0 {
		l.errs = out.validate()
	}
	return out, errors.Join(l.errs...)
}

// Defaults is the configuration when nothing is given.
func Defaults() Config {
	l, err := Load(Input{})
	if err != nil {
		panic(err) // the table contradicts itself; a test would have said so
	}
	return l.Config
}

func (l *loader) fail(key, source, reason string) {
	l.errs = append(l.errs, &Error{Key: key, Source: source, Reason: reason})
}

func (l *loader) put(name string, s setting) {
	if l.known[name] == nil {
		l.unknown(name, s.source, nearest(name, Key.name))
		return
	}
	if have, ok := l.found[name]; !ok || have.layer < s.layer {
		l.found[name] = s
	}
}

func (l *loader) unknown(name, source, near string) {
	l.fail(name, source, "unknown key; the nearest known one is "+near)
}

// environ takes the variables with our prefix, and the file's name if no flag
// gave it. Kubernetes' own variables for a service of our name are none of ours.
func (l *loader) environ(environ []string, file *string) {
	byEnv := map[string]string{}
	for _, k := range Keys {
		byEnv[k.Env()] = k.Name
	}
	for _, kv := range environ {
		name, text, _ := strings.Cut(kv, "=")
		switch {
		case !strings.HasPrefix(name, envPrefix),
			strings.HasPrefix(name, envPrefix+"SERVICE_"), strings.HasPrefix(name, envPrefix+"PORT"):
		case name == ConfigEnv:
			if *file == "" {
				*file = text
			}
		case byEnv[name] == "":
			l.unknown(name, "environment", nearest(name, Key.Env))
		default:
			l.put(byEnv[name], setting{text, "environment " + name, layerEnv})
		}
	}
}

func (l *loader) file(path string) {
	b, err := os.ReadFile(path)
	if err != nil {
		l.fail("", "", "read configuration file: "+err.Error())
		return
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		// yaml's message can quote a line of the file, and that a secret.
		line := yamlLine.FindString(err.Error())
		l.fail("", path, strings.TrimSpace("the file is not valid YAML "+line))
		return
	}
	if len(doc.Content) > 0 && doc.Content[0].Tag != "!!null" {
		l.node(path, "", doc.Content[0])
	}
}

// node walks sections down to values. "a.b: v" and "a: {b: v}" are the same.
func (l *loader) node(path, prefix string, n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	source := fmt.Sprintf("%s:%d", path, n.Line)
	switch {
	case n.Kind == yaml.MappingNode && l.known[prefix] == nil:
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := strings.TrimPrefix(prefix+"."+n.Content[i].Value, ".")
			l.node(path, name, n.Content[i+1])
		}
	case prefix == "":
		l.fail("", source, "the file must hold keys and values")
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		// A key without a value, and a section without keys, say nothing.
		if l.known[prefix] == nil && !isSection(prefix) {
			l.unknown(prefix, source, nearest(prefix, Key.name))
		}
	case n.Kind == yaml.ScalarNode:
		l.fromFile(prefix, setting{n.Value, source, layerFile})
	case n.Kind == yaml.SequenceNode && l.known[prefix] != nil && strings.HasPrefix(l.known[prefix].Type, "list"):
		items := make([]string, len(n.Content))
		for i, item := range n.Content {
			if item.Kind != yaml.ScalarNode || strings.Contains(item.Value, ",") {
				l.fail(prefix, source, "want a list of plain values")
				return
			}
			items[i] = item.Value
		}
		l.fromFile(prefix, setting{strings.Join(items, ","), source, layerFile})
	case l.known[prefix] == nil:
		l.unknown(prefix, source, nearest(prefix, Key.name))
	default:
		l.fail(prefix, source, "want one value")
	}
}

func (l *loader) fromFile(name string, s setting) {
	if first, ok := l.found[name]; ok && first.layer == layerFile {
		l.fail(name, s.source, "given twice, first in "+first.source)
		return
	}
	if l.known[name] == nil && isSection(name) {
		l.fail(name, s.source, "is a section, not a key")
		return
	}
	l.put(name, s)
}

func isSection(name string) bool {
	return slices.ContainsFunc(Keys, func(k Key) bool { return strings.HasPrefix(k.Name, name+".") })
}

// apply sets one key from its strongest layer. Of a secret and its -file
// variant the stronger one counts.
func (l *loader) apply(out *Loaded, k *Key) {
	s, given := l.found[k.Name]
	if !given && k.Default != "" {
		s = setting{text: k.Default}
	}
	if !given && k.Default == "" {
		return
	}
	if k.Secret || k.File {
		twin := k.Name + fileSuffix
		if k.File {
			twin = strings.TrimSuffix(k.Name, fileSuffix)
		}
		switch other, ok := l.found[twin]; {
		case ok && other.layer > s.layer:
			return
		case ok && other.layer == s.layer && k.File:
			l.fail(k.Name, s.source, "given together with "+twin+": give one of them")
			return
		}
	}
	if given {
		out.sources[k.Name] = s.source
	}
	if s.text == "" && (k.Secret || k.File) {
		return
	}
	if err := k.set(&out.Config, s.text); err != nil {
		reason := err.Error()
		if !k.Secret && !k.File && !strings.Contains(reason, strconv.Quote(s.text)) {
			reason = fmt.Sprintf("%q: %s", s.text, reason)
		}
		l.fail(k.Name, s.source, reason)
	}
}
