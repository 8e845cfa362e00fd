package schemas

import (
	"bytes"
	"embed"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

//go:embed json/*.schema.json
var schemaFiles embed.FS

//go:embed examples/*.json
var exampleFiles embed.FS

// The names of the JSON Schemas. All but CloudEvent describe an event's data;
// CloudEvent describes a whole event in structured mode and applies the schema
// that its type asks for to its data.
const (
	CloudEvent      = "cloudevent"
	Registration    = "registration.v1"
	StateChange     = "state-change.v1"
	DeviceHeartbeat = "device-heartbeat.v1"
	LCMEventV1      = "lcm-event.v1"
	LCMEventV2      = "lcm-event.v2"
	InventoryEvent  = "inventory-event.v1"
	Outcome         = "outcome.v1"
)

// Names are the names of all JSON Schemas.
func Names() []string {
	return []string{CloudEvent, Registration, StateChange, DeviceHeartbeat, LCMEventV1, LCMEventV2, InventoryEvent, Outcome}
}

// Schema returns the text of a JSON Schema (draft 2020-12).
func Schema(name string) ([]byte, error) {
	b, err := schemaFiles.ReadFile("json/" + name + ".schema.json")
	if err != nil {
		return nil, fmt.Errorf("no JSON Schema named %q", name)
	}
	return b, nil
}

// Example returns an example of the event whose data the named schema
// describes, as a CloudEvent in structured mode.
func Example(name string) ([]byte, error) {
	b, err := exampleFiles.ReadFile("examples/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("no example named %q", name)
	}
	return b, nil
}

// Invalid is one member of a document that its schema refuses.
type Invalid struct {
	// Member is the JSON pointer of the member, "" for the document. Below a
	// map of private properties it ends in cmHandleProperties[…].
	Member string
	Text   string // never quotes a value of the document
}

func (i Invalid) String() string {
	if i.Member == "" {
		return i.Text
	}
	return i.Member + ": " + i.Text
}

// InvalidError lists what a schema refuses, at least one member, in the order
// of the members.
type InvalidError struct {
	Schema  string
	Members []Invalid
}

func (e *InvalidError) Error() string {
	texts := make([]string, len(e.Members))
	for i, m := range e.Members {
		texts[i] = m.String()
	}
	return "no valid " + e.Schema + ": " + strings.Join(texts, "; ")
}

var compiled = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	for _, name := range Names() {
		text, err := Schema(name)
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("JSON Schema %s: %w", name, err)
		}
		if err := c.AddResource(schemaURL(name), doc); err != nil {
			return nil, fmt.Errorf("JSON Schema %s: %w", name, err)
		}
	}
	all := map[string]*jsonschema.Schema{}
	for _, name := range Names() {
		s, err := c.Compile(schemaURL(name))
		if err != nil {
			return nil, fmt.Errorf("JSON Schema %s: %w", name, err)
		}
		all[name] = s
	}
	return all, nil
})

// schemaURL is the $id of the schema: relative references between the files
// resolve against it. Nothing is fetched.
func schemaURL(name string) string { return "urn:ncmp-inventory:schema:" + name }

// Validate checks a JSON document against the named schema; the schemas are
// compiled once. The error is an *InvalidError if the document is at fault. It
// is made for edges that people look at; the worker's own decoder judges input
// without it.
func Validate(name string, doc []byte) error {
	all, err := compiled()
	if err != nil {
		return err
	}
	s := all[name]
	if s == nil {
		return fmt.Errorf("no JSON Schema named %q", name)
	}
	// jsontext refuses what the schema's reader lets pass: members that
	// stand twice, invalid UTF-8 and unpaired surrogates.
	if !jsontext.Value(doc).IsValid() {
		return &InvalidError{name, []Invalid{{"", "is no valid JSON"}}}
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return &InvalidError{name, []Invalid{{"", "is no valid JSON"}}}
	}
	err = s.Validate(v)
	if err == nil {
		return nil
	}
	ve, ok := err.(*jsonschema.ValidationError) //nolint:errorlint // documented as the concrete type
	if !ok {
		return fmt.Errorf("JSON Schema %s: %w", name, err)
	}
	e := &InvalidError{Schema: name}
	collect(ve, &e.Members)
	slices.SortFunc(e.Members, func(a, b Invalid) int {
		return strings.Compare(a.Member+"\x00"+a.Text, b.Member+"\x00"+b.Text)
	})
	e.Members = slices.Compact(e.Members)
	return e
}

// collect keeps the leaves of the tree of errors: those that name a cause.
func collect(e *jsonschema.ValidationError, out *[]Invalid) {
	if len(e.Causes) == 0 {
		*out = append(*out, Invalid{pointer(e.InstanceLocation), reason(e.ErrorKind)})
		return
	}
	for _, c := range e.Causes {
		collect(c, out)
	}
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func pointer(location []string) string {
	var b strings.Builder
	for i, p := range location {
		b.WriteString("/" + pointerEscapes.Replace(p))
		if p == "cmHandleProperties" && i+1 < len(location) {
			b.WriteString("[…]")
			break
		}
	}
	return b.String()
}

// reason words a refusal without the library's own text, which quotes values.
func reason(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "is " + k.Got + ", want " + strings.Join(k.Want, " or ")
	case *kind.Required:
		return "lacks " + strings.Join(k.Missing, ", ")
	case *kind.DependentRequired:
		return "has " + k.Prop + " but lacks " + strings.Join(k.Missing, ", ")
	case *kind.Enum:
		return "is none of " + values(k.Want...)
	case *kind.Const:
		return "is not " + values(k.Want)
	case *kind.Pattern:
		return "does not match " + k.Want
	case *kind.MinLength:
		return "has " + strconv.Itoa(k.Got) + " characters, want at least " + strconv.Itoa(k.Want)
	case *kind.MaxLength:
		return "has " + strconv.Itoa(k.Got) + " characters, want at most " + strconv.Itoa(k.Want)
	case *kind.MinItems:
		return "has " + strconv.Itoa(k.Got) + " elements, want at least " + strconv.Itoa(k.Want)
	case *kind.MaxItems:
		return "has " + strconv.Itoa(k.Got) + " elements, want at most " + strconv.Itoa(k.Want)
	case *kind.MinProperties:
		return "has " + strconv.Itoa(k.Got) + " members, want at least " + strconv.Itoa(k.Want)
	case *kind.AdditionalProperties:
		return "has members that are not known: " + strings.Join(k.Properties, ", ")
	case *kind.FalseSchema:
		return "is not allowed here"
	}
	return "breaks the rule " + path.Join(k.KeywordPath()...)
}

func values(vs ...any) string {
	texts := make([]string, len(vs))
	for i, v := range vs {
		if texts[i] = fmt.Sprint(v); v == nil {
			texts[i] = "null"
		}
	}
	return strings.Join(texts, ", ")
}
