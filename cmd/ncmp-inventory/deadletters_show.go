package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"ncmp-inventory/inventory"
)

func newDeadLettersShowCommand(a *app) *cobra.Command {
	var private, asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Shows a dead letter: why, where from, headers and value",
		Long: `Shows one dead letter, named as dead-letters list names it. The values of private
properties are hidden, also in JSON within a string, and so is what cannot be
read as JSON, where they could hide; --private shows all as it came.`,
		Example: `  ncmp-inventory dead-letters show 2/17`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.load("kafka.brokers")
			if err != nil {
				return err
			}
			var f deadLetters
			if err := f.prepare(&c.Config, args); err != nil {
				return err
			}
			done, err := a.replayed(cmd, c)
			if err != nil {
				return err
			}
			var found *deadLetter
			if err := f.read(cmd.Context(), c.Kafka, func(d *deadLetter) (bool, error) {
				found = d
				return false, nil
			}); err != nil {
				return err
			}
			if found == nil {
				return &exitError{exitFailed, fmt.Errorf("there is no dead letter %s", args[0])}
			}
			value := string(found.value)
			if !private {
				value = maskedValue(found.value)
				found.headers = maskedHeaders(found.headers)
			}
			if asJSON {
				v := found.view(done)
				value = valid([]byte(value))
				v.Value = &value
				for _, h := range found.headers {
					v.Headers = append(v.Headers, headerJSON{valid([]byte(h.Key)), valid(h.Value)})
				}
				return writeJSON(a.stdout, v, jsontext.WithIndent("  "))
			}
			return a.showDeadLetter(found, found.status(done), value)
		},
	}
	cmd.Flags().BoolVar(&private, "private", false, "show value and headers as they came")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func (a *app) showDeadLetter(d *deadLetter, status, value string) error {
	t := newTable(a.stdout)
	t.row("id", d.id())
	t.row("reason", d.reason)
	t.row("text", d.text)
	if d.field != "" {
		t.row("field", d.field)
	}
	if n, err := strconv.ParseInt(d.byteOffset, 10, 64); err == nil && n >= 0 {
		t.row("byte", d.byteOffset)
	}
	t.row("attempts", d.attempts)
	t.row("source", placeText(d.source))
	t.row("source topic id", uuid.UUID(d.source.TopicID).String())
	t.row("source time", sourceTimeText(d))
	t.row("set aside", d.published.UTC().Format(timeMillis))
	if status != "-" {
		t.row("status", status)
	}
	if d.replays > 0 {
		t.row("first stood at", placeText(d.origin))
	}
	t.row("key", keyText(d.key))
	for _, h := range d.headers {
		t.row("header "+h.Key, headerText(h))
	}
	if err := t.flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.stdout, "\n%s\n", printableLines(value))
	return err
}

func keyText(key []byte) string {
	if key == nil {
		return "(none)"
	}
	return string(key)
}

func headerText(h inventory.Header) string {
	if h.Value == nil {
		return "(null)"
	}
	return string(h.Value)
}

// printableLines keeps line ends and nothing else that moves the cursor.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = printable(strings.ReplaceAll(l, "\t", "  "))
	}
	return strings.Join(lines, "\n")
}

// maskedValue shows a record's value without private properties, as far as it
// can be read as JSON.
func maskedValue(value []byte) string {
	if len(value) == 0 {
		return "(no value)"
	}
	text, at := masked(value, true, jsontext.WithIndent("  "))
	if at < 0 {
		return text
	}
	return fmt.Sprintf("%s\n… %d of %d bytes, from byte %d on, are no valid JSON and hidden; --private shows them",
		text, int64(len(value))-at, len(value), at)
}

// masked is JSON without private properties, and where it stops to be valid, -1
// if it does not. With opaque a string at its top is hidden unless it is JSON.
func masked(value []byte, opaque bool, opts ...jsontext.Options) (text string, at int64) {
	lax := jsontext.AllowDuplicateNames(true)
	raw := jsontext.AllowInvalidUTF8(true)
	dec := jsontext.NewDecoder(bytes.NewReader(value), lax, raw)
	var out bytes.Buffer
	enc := jsontext.NewEncoder(&out, append(opts, lax, raw)...)
	var err error
	for err == nil {
		err = copyMasked(dec, enc, false, opaque)
	}
	at = -1
	if !errors.Is(err, io.EOF) {
		at = dec.InputOffset()
		closeAll(enc)
	}
	return strings.TrimRight(out.String(), "\n"), at
}

// maskedText is a string without private properties: producers encode JSON
// twice, and the second time it is a string. With opaque all else is hidden.
func maskedText(s string, opaque bool) string {
	start := strings.TrimLeft(s, " \t\r\n\uFEFF")
	isJSON := start != "" && strings.IndexByte(`{["`, start[0]) >= 0
	switch {
	case isJSON || strings.Contains(strings.ToLower(s), strings.ToLower(privateMember)):
		text, at := masked([]byte(s), opaque)
		if at < 0 {
			return text
		}
		return hidden
	case opaque:
		return hidden
	}
	return s
}

func maskedHeaders(headers []inventory.Header) []inventory.Header {
	out := slices.Clone(headers)
	for i, h := range out {
		switch name := strings.TrimPrefix(strings.ToLower(h.Key), "ce_"); {
		case h.Value == nil:
		case secretMember(name):
			out[i].Value = []byte(hidden)
		default:
			out[i].Value = []byte(maskedText(string(h.Value), false))
		}
	}
	return out
}

// copyMasked copies one JSON value and hides every scalar in it if hide is
// set, and every string that is no JSON if opaque is. What stands in a member of
// private properties, or is encoded, is hidden.
func copyMasked(dec *jsontext.Decoder, enc *jsontext.Encoder, hide, opaque bool) error {
	open := dec.PeekKind()
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	if open != '{' && open != '[' {
		switch {
		case hide:
			tok = jsontext.String(hidden)
		case open == '"':
			s := tok.String()
			if shown := maskedText(s, opaque); shown != s {
				tok = jsontext.String(shown)
			}
		}
		return enc.WriteToken(tok)
	}
	if err := enc.WriteToken(tok); err != nil {
		return err
	}
	for k := dec.PeekKind(); k != '}' && k != ']'; k = dec.PeekKind() {
		inner, text := hide, false
		if open == '{' {
			name, err := dec.ReadToken()
			if err != nil {
				return err
			}
			inner, text = hide || secretMember(name.String()), strings.EqualFold(name.String(), "data")
			if err := enc.WriteToken(name); err != nil {
				return err
			}
		}
		if err := copyMasked(dec, enc, inner, text); err != nil {
			return err
		}
	}
	if tok, err = dec.ReadToken(); err != nil {
		return err
	}
	return enc.WriteToken(tok)
}

// closeAll ends what is open, so that the part that could be read is shown.
func closeAll(enc *jsontext.Encoder) {
	for enc.StackDepth() > 0 {
		kind, n := enc.StackIndex(enc.StackDepth())
		end := jsontext.EndArray
		if kind == '{' {
			end = jsontext.EndObject
			if n%2 == 1 {
				_ = enc.WriteToken(jsontext.String("…")) // a name waits for its value
			}
		}
		if enc.WriteToken(end) != nil {
			return
		}
	}
}

// privateMember is the map of private properties.
const privateMember = "cmHandleProperties"

// secretMember names members whose value is nobody's business.
func secretMember(name string) bool {
	return strings.EqualFold(name, privateMember) || strings.EqualFold(name, "data_base64")
}
