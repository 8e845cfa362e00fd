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

	"ncmp-inventory/cmd/ncmp-inventory/config"
)

// entryMembers are the members of a registration that hold entries.
var entryMembers = []string{"createdCmHandles", "updatedCmHandles", "removedCmHandles", "upgradedCmHandles"}

// typoEdits is how many edits a member's name may be away from one that holds
// entries to be taken for it.
const typoEdits = 4

// warnEmpty tells of a body without an entry: a member that NCMP does not know
// is passed over, so that a typing error looks like success.
func (a *app) warnEmpty(b body) {
	typo, empty := emptyBody(b.json)
	if !empty {
		return
	}
	if typo != "" {
		near, _ := config.Nearest(typo, entryMembers)
		fmt.Fprintf(a.stderr, "%s: warning: it has no entries; %s is passed over, the nearest member is %s\n", b.place, printable(typo), near)
		return
	}
	fmt.Fprintf(a.stderr, "%s: warning: it has no entries: want %s\n", b.place, strings.Join(entryMembers, ", "))
}

// emptyBody reports whether a registration, which is valid JSON, has no entries,
// and a member that could have been meant for them.
func emptyBody(text []byte) (typo string, empty bool) {
	dec := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true))
	if _, err := dec.ReadToken(); err != nil {
		return "", false
	}
	for dec.PeekKind() == '"' {
		tok, err := dec.ReadToken()
		if err != nil {
			return "", false
		}
		name := tok.String()
		v, err := dec.ReadValue()
		if err != nil {
			return "", false
		}
		if slices.Contains(entryMembers, name) {
			if (v.Kind() == '[' || v.Kind() == '{') && len(bytes.TrimSpace(v[1:len(v)-1])) > 0 {
				return "", false
			}
		} else if _, edits := config.Nearest(name, entryMembers); edits <= typoEdits {
			typo = name
		}
	}
	return typo, true
}

// syntaxText says what is wrong with JSON and where, without a name or value of
// private properties.
func syntaxText(err error) string {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return err.Error() // reading failed
	}
	text := "invalid JSON"
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		text = "the member stands twice in its object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		text = "unexpected end of JSON"
	}
	if at := memberPath(syntax.JSONPointer); at != "" {
		text += ", " + at
	}
	return fmt.Sprintf("%s, byte %d", text, syntax.ByteOffset)
}

// memberPath writes a pointer as createdCmHandles[3].cmHandle. What stands below
// the private properties is left out.
func memberPath(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if _, err := strconv.ParseUint(token, 10, 32); err == nil {
			fmt.Fprintf(&b, "[%s]", token)
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(printable(token))
		if strings.EqualFold(token, privateMember) {
			if p.LastToken() != token {
				b.WriteString("[…]")
			}
			break
		}
	}
	return b.String()
}
