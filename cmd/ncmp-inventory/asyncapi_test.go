package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/consumer"
	"ncmp-inventory/inventory"
	"ncmp-inventory/schemas"
	"ncmp-inventory/store/storetest"
)

const asyncAPIFile = "docs/asyncapi.yaml"

// asyncAPI is the part of AsyncAPI 3.0 that the document uses; anything else in
// it is a mistake.
type asyncAPI struct {
	AsyncAPI string
	Info     struct {
		Title, Version, Description string
		License                     struct{ Name, URL string }
	}
	DefaultContentType string `yaml:"defaultContentType"`
	Servers            map[string]struct{ Host, Protocol, Description string }
	Channels           map[string]struct {
		Address, Title, Description string
		Messages                    map[string]reference
	}
	Operations map[string]struct {
		Action, Summary string
		Channel         reference
	}
	Components struct {
		Messages map[string]asyncMessage
		Schemas  map[string]yaml.Node
	}

	root     yaml.Node // the whole document, for its order
	compiler *jsonschema.Compiler
}

type reference struct {
	To string `yaml:"$ref"`
}

type asyncMessage struct {
	Title, Summary, Description string
	ContentType                 string `yaml:"contentType"`
	Bindings                    struct {
		Kafka struct {
			Key struct{ Type, Description string }
		}
	}
	Headers, Payload yaml.Node
	Examples         []asyncExample
}

type asyncExample struct {
	Name, Summary string
	Headers       map[string]string
	Payload       any
}

// documentURL is where the document is thought to stand: its references to
// files are resolved against it.
const documentURL = "file:///docs/asyncapi.yaml"

func readAsyncAPI(t *testing.T) *asyncAPI {
	t.Helper()
	text := []byte(readRepo(t, asyncAPIFile))
	d := &asyncAPI{compiler: jsonschema.NewCompiler()}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	require.NoError(t, dec.Decode(d))
	require.NoError(t, yaml.Unmarshal(text, &d.root))
	require.NoError(t, d.compiler.AddResource(documentURL, jsonOf(t, &d.root)))
	for _, name := range schemas.Names() {
		b, err := schemas.Schema(name)
		require.NoError(t, err)
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		require.NoError(t, err)
		require.NoError(t, d.compiler.AddResource("urn:ncmp-inventory:schema:"+name, doc))
		require.NoError(t, d.compiler.AddResource("file:///schemas/json/"+name+".schema.json", doc))
	}
	return d
}

// jsonOf is a YAML node as a JSON Schema library wants its documents.
func jsonOf(t *testing.T, n *yaml.Node) any {
	t.Helper()
	var v any
	require.NoError(t, n.Decode(&v))
	b, err := json.Marshal(v)
	require.NoError(t, err)
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	require.NoError(t, err)
	return out
}

// under is what the document holds at a JSON pointer.
func (d *asyncAPI) under(pointer string) *yaml.Node {
	n := d.root.Content[0]
	for name := range strings.SplitSeq(strings.Trim(pointer, "#/"), "/") {
		if n = memberOf(n, name); n == nil {
			return nil
		}
	}
	return n
}

func memberOf(n *yaml.Node, name string) *yaml.Node {
	n = aliased(n)
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

func aliased(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// namesIn are the members of a node in the order in which they are written.
func namesIn(n *yaml.Node) []string {
	var names []string
	n = aliased(n)
	for i := 0; n != nil && i+1 < len(n.Content); i += 2 {
		names = append(names, n.Content[i].Value)
	}
	return names
}

// refuses says why headers and payload are not those of a message, nil if they are.
func (d *asyncAPI) refuses(t *testing.T, message string, headers map[string]string, payload any) error {
	t.Helper()
	at := documentURL + "#/components/messages/" + message
	h, err := d.compiler.Compile(at + "/headers")
	require.NoError(t, err)
	named := map[string]any{}
	for name, value := range headers {
		named[name] = value
	}
	if err := h.Validate(named); err != nil {
		return fmt.Errorf("headers: %w", err)
	}
	if d.under("#/components/messages/"+message+"/payload/schema") == nil {
		return nil // anything
	}
	p, err := d.compiler.Compile(at + "/payload/schema")
	require.NoError(t, err)
	b, err := json.Marshal(payload)
	require.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	require.NoError(t, err)
	return p.Validate(v)
}

// messagesOn are the messages of the channel with an address.
func (d *asyncAPI) messagesOn(t *testing.T, address string) []string {
	t.Helper()
	for name, c := range d.Channels {
		if c.Address == address {
			return namesIn(d.under("#/channels/" + name + "/messages"))
		}
	}
	require.Fail(t, "no channel has the address "+address)
	return nil
}

func TestTheAsyncAPIDocumentIsWhole(t *testing.T) {
	t.Parallel()
	d := readAsyncAPI(t)
	require.Equal(t, "3.0.0", d.AsyncAPI)

	var follow func(n *yaml.Node)
	follow = func(n *yaml.Node) {
		if to := memberOf(n, "$ref"); to != nil {
			if file, isFile := strings.CutPrefix(to.Value, "../"); isFile {
				require.FileExists(t, "../../"+file)
			} else {
				require.NotNil(t, d.under(to.Value), to.Value)
			}
		}
		for _, c := range n.Content {
			follow(c)
		}
	}
	follow(&d.root)

	topics := config.Defaults().Kafka.Topics
	inputs, outputs := topics.Inputs(), []string{topics.LCMEvents, topics.InventoryEvents, topics.Outcomes, topics.DeadLetters}
	used, operated := map[string]bool{}, map[string]string{}
	for _, o := range d.Operations {
		operated[path.Base(o.Channel.To)] = o.Action
	}
	for name, c := range d.Channels {
		all, action := outputs, "send"
		if slices.Contains(inputs, c.Address) {
			all, action = inputs, "receive"
		}
		require.Contains(t, all, c.Address)
		require.Equal(t, action, operated[name], name)
		for alias, m := range c.Messages {
			require.Equal(t, "#/components/messages/"+alias, m.To)
			used[alias] = true
		}
	}
	require.Len(t, d.Channels, len(inputs)+len(outputs))
	for name, m := range d.Components.Messages {
		require.True(t, used[name], "message %s is on no channel", name)
		require.NotEmpty(t, m.Title, name)
		require.NotEmpty(t, m.Summary, name)
		require.NotEmpty(t, m.Bindings.Kafka.Key.Description, name)
		require.NotEmpty(t, m.Examples, "message %s has no example", name)
	}
	var reasons []string
	require.NoError(t, d.under("#/components/messages/deadLetter/headers/properties/ncmp_reason/enum").Decode(&reasons))
	require.Equal(t, append(slices.Clone(consumer.DecodeReasons), "batch-too-large", inventory.ReasonRefused, inventory.ReasonOvertaken), reasons)
}

// Each example is valid, and an input is understood by the worker's own decoder.
func TestTheExamplesOfTheAsyncAPIDocumentAreTaken(t *testing.T) {
	t.Parallel()
	d := readAsyncAPI(t)
	decoder := newDecoder(config.Defaults().Limits)
	decoded := 0
	for _, o := range d.Operations {
		channel := d.Channels[path.Base(o.Channel.To)]
		for name := range channel.Messages {
			m := d.Components.Messages[name]
			for _, e := range m.Examples {
				label := channel.Address + " " + name + " " + e.Name
				require.NoError(t, d.refuses(t, name, e.Headers, e.Payload), label)
				value, err := json.Marshal(e.Payload)
				require.NoError(t, err)
				if o.Action == "send" {
					if id := e.Headers["ce_id"]; m.ContentType != "" && strings.HasPrefix(name, "lcm") {
						require.Contains(t, string(value), `"eventId":"`+id+`"`, label)
					}
					continue
				}
				r := inventory.Record{Key: []byte("lab-17"), Value: value}
				for k, v := range e.Headers {
					r.Headers = append(r.Headers, inventory.Header{Key: k, Value: []byte(v)})
				}
				decoder.Decode(&r, channel.Address == "dmi-device-heartbeat")
				require.Nil(t, r.Dead, "%s: %+v", label, r.Dead)
				require.NotEmpty(t, r.Events, label)
				for i := range r.Events {
					require.NotEmpty(t, r.Events[i].Items, label)
					for _, item := range r.Events[i].Items {
						require.Nil(t, item.Reject, label)
					}
				}
				decoded++
			}
		}
	}
	require.Greater(t, decoded, 10)
}

// What a real worker sends, of every kind there is, is what the document says of
// its topic.
func TestWhatTheWorkerSendsIsInTheAsyncAPIDocument(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			newLab(t, storetest.Open(t), 1).requireOutputsAsSpecified(version)
		})
	}
}

func (l *lab) requireOutputsAsSpecified(version string) {
	l.Helper()
	d := readAsyncAPI(l.T)
	w := l.startWorker("worker", "--lcm.version", version, "--outcomes", "all")
	w.awaitLine(`"started"`)
	sent := 0
	for _, r := range shownRecords(l.T, readRepo(l.T, "docs/events.md")) {
		if r.out {
			continue
		}
		r.headers = append(r.headers, [2]string{"ce_traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, [2]string{"ce_tracestate", "lab=1"})
		l.sendShown(r)
		l.record(l.config.Kafka.Topics.Outcomes, sent)
		sent++
	}
	l.awaitNothingWaits()
	w.terminate()
	seen := map[string]int{}
	t := l.config.Kafka.Topics
	for _, topic := range []string{t.LCMEvents, t.InventoryEvents, t.Outcomes, t.DeadLetters} {
		for _, m := range l.topic(topic) {
			seen[d.requireSpecified(l.T, topic, &m)+" "+path.Ext(headerOf(&m, "ce_type"))]++
		}
	}
	require.Equal(l, map[string]int{
		"lcmEventV" + version[1:] + " .create": 1, "lcmEventV" + version[1:] + " .update": 4, "lcmEventV" + version[1:] + " .delete": 1,
		"trustChange .AvcEvent": 1, "outcome .v1": sent, "deadLetter .v1": 1,
	}, seen)
}

// requireSpecified names the one message of the topic that a record is.
func (d *asyncAPI) requireSpecified(t *testing.T, topic string, m *kafka.Message) string {
	t.Helper()
	headers := map[string]string{}
	for _, h := range m.Headers {
		headers[h.Key] = string(h.Value)
	}
	var payload any
	require.NoError(t, json.Unmarshal(m.Value, &payload))
	var is []string
	var why []error
	for _, name := range d.messagesOn(t, topic) {
		if err := d.refuses(t, name, headers, payload); err != nil {
			why = append(why, fmt.Errorf("%s: %w", name, err))
			continue
		}
		is = append(is, name)
	}
	require.Len(t, is, 1, "%s: %v", m.Value, why)
	return is[0]
}

// The topics and the reference of docs/events.md are those of the document.
func TestEventsReferenceIsCurrent(t *testing.T) {
	t.Parallel()
	d := readAsyncAPI(t)
	const file = "docs/events.md"
	text := readRepo(t, file)
	want := between(t, text, "topics", d.topicsTable())
	want = between(t, want, "messages", d.messagesReference(t))
	if *update {
		require.NoError(t, os.WriteFile("../../"+file, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, text, "run `make docs`")
}

// between replaces what stands between two marks.
func between(t *testing.T, text, mark, with string) string {
	t.Helper()
	begin, end := "<!-- "+mark+": written by `make docs` -->\n", "<!-- /"+mark+" -->"
	head, rest, ok := strings.Cut(text, begin)
	require.True(t, ok, mark)
	_, tail, ok := strings.Cut(rest, end)
	require.True(t, ok, mark)
	return head + begin + with + end + tail
}

func (d *asyncAPI) topicsTable() string {
	var b strings.Builder
	b.WriteString("| topic (default) | key | direction | what |\n|---|---|---|---|\n")
	for _, name := range namesIn(d.under("#/operations")) {
		o := d.Operations[name]
		c := d.Channels[path.Base(o.Channel.To)]
		direction := map[string]string{"receive": "in", "send": "out"}[o.Action]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.Address, o.Summary, direction, c.Description)
	}
	return b.String()
}

func (d *asyncAPI) messagesReference(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, name := range namesIn(d.under("#/components/messages")) {
		m := d.Components.Messages[name]
		fmt.Fprintf(&b, "\n### %s\n\n%s", m.Title, m.Summary)
		if m.Description != "" {
			b.WriteString(" " + m.Description)
		}
		fmt.Fprintf(&b, "\nKey: %s", lowerFirst(m.Bindings.Kafka.Key.Description))
		if to := d.under("#/components/messages/" + name + "/payload/schema/$ref"); to != nil {
			fmt.Fprintf(&b, " Value: [%s](%s).", path.Base(to.Value), to.Value)
		}
		b.WriteString("\n\n| header | | what |\n|---|---|---|\n")
		h := &headerTable{d: d, rows: map[string]*headerRow{}, required: map[string]bool{}}
		h.add(d.under("#/components/messages/" + name + "/headers"))
		for _, header := range h.order {
			r := h.rows[header]
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", header, map[bool]string{true: "always"}[h.required[header]], r.text())
		}
		for i, e := range m.Examples {
			if i > 0 && maps.Equal(e.Headers, m.Examples[i-1].Headers) {
				fmt.Fprintf(&b, "\n%s\n\n```json\n", e.Summary)
			} else {
				fmt.Fprintf(&b, "\n%s\n\n```text\n", e.Summary)
				for _, header := range namesIn(memberOf(d.exampleOf(name, e.Name), "headers")) {
					fmt.Fprintf(&b, "%s: %s\n", header, e.Headers[header])
				}
				b.WriteByte('\n')
			}
			b.WriteString(jsonText(t, memberOf(d.exampleOf(name, e.Name), "payload"), ""))
			b.WriteString("\n```\n")
		}
	}
	b.WriteByte('\n')
	return b.String()
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

func (d *asyncAPI) exampleOf(message, name string) *yaml.Node {
	for _, e := range d.under("#/components/messages/" + message + "/examples").Content {
		if memberOf(e, "name").Value == name {
			return e
		}
	}
	return nil
}

// headerTable gathers what the parts of a headers schema say of each header.
type headerTable struct {
	d        *asyncAPI
	order    []string
	rows     map[string]*headerRow
	required map[string]bool
}

type headerRow struct{ description, only string }

func (r *headerRow) text() string {
	return strings.TrimSpace(strings.Join([]string{r.only, r.description}, " "))
}

func (h *headerTable) add(n *yaml.Node) {
	if to := memberOf(n, "$ref"); to != nil {
		h.add(h.d.under(to.Value))
	}
	if all := memberOf(n, "allOf"); all != nil {
		for _, part := range all.Content {
			h.add(part)
		}
	}
	properties := memberOf(n, "properties")
	for _, name := range namesIn(properties) {
		r := h.rows[name]
		if r == nil {
			r = &headerRow{}
			h.rows[name] = r
			h.order = append(h.order, name)
		}
		p := memberOf(properties, name)
		if v := memberOf(p, "description"); v != nil {
			r.description = v.Value
		}
		if v := memberOf(p, "const"); v != nil {
			r.only = "`" + v.Value + "`"
		}
		if v := memberOf(p, "enum"); v != nil {
			var values []string
			for _, one := range v.Content {
				values = append(values, "`"+one.Value+"`")
			}
			r.only = strings.Join(values, ", ")
			if r.description != "" {
				r.only += "."
			}
		}
	}
	if required := memberOf(n, "required"); required != nil {
		for _, name := range required.Content {
			h.required[name.Value] = true
		}
	}
}

// jsonText is a node as JSON, members in the order in which they are written;
// what fits a line stands on one.
func jsonText(t *testing.T, n *yaml.Node, indent string) string {
	t.Helper()
	var parts []string
	deeper := indent + "  "
	opening, closing := "{", "}"
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			parts = append(parts, `"`+n.Content[i].Value+`": `+jsonText(t, n.Content[i+1], deeper))
		}
	case yaml.SequenceNode:
		opening, closing = "[", "]"
		for _, c := range n.Content {
			parts = append(parts, jsonText(t, c, deeper))
		}
	default:
		var v any
		require.NoError(t, n.Decode(&v))
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return string(b)
	}
	if line := opening + strings.Join(parts, ", ") + closing; len(line)+len(indent) < 90 && !strings.Contains(line, "\n") {
		return line
	}
	return opening + "\n" + deeper + strings.Join(parts, ",\n"+deeper) + "\n" + indent + closing
}
