package consumer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"ncmp-inventory/inventory"
)

// Limits of one entry, in bytes. They keep every xpath below what a PostgreSQL
// index row holds, whatever the text compresses to.
const (
	maxID           = 256
	maxAlternateID  = 2048
	maxPropertyName = 512
	maxXPath        = 2600
)

// forbidden are NCMP's characters that no name may hold, in the order in which
// NCMP looks for them: the first of the list that occurs is the one reported.
const forbidden = "=! \"#$%&'()*+,./\\:;<>?@[]^`{|}~"

// checkNewID says why NCMP's rules refuse id for a new handle; nil means they
// do not.
func checkNewID(id string) *inventory.Rejection {
	if strings.ContainsAny(id, forbidden) {
		for _, c := range forbidden {
			if i := strings.IndexRune(id, c); i >= 0 {
				return inventory.Reject(inventory.CodeInvalidID,
					fmt.Sprintf("%s invalid token encountered at position %d", clip(visible(id)), utf16Len(id[:i])+1))
			}
		}
	}
	if len(id) > maxID {
		return inventory.Reject(inventory.CodeInvalidID, fmt.Sprintf("id of %d bytes, at most %d are allowed", len(id), maxID))
	}
	return nil
}

// checkKnownID refuses an id that cannot be stored under any rules. Older
// systems stored ids that today would be refused; those must stay removable.
func checkKnownID(id string) *inventory.Rejection {
	if n := handleXPathLen(id); n > maxXPath {
		return inventory.Reject(inventory.CodeInvalidID, fmt.Sprintf("xpath of %d bytes, at most %d are allowed", n, maxXPath))
	}
	return nil
}

// handleXPathLen is the length of a handle's xpath, apostrophes doubled.
func handleXPathLen(id string) int {
	return len("/dmi-registry/cm-handles[@id='']") + len(id) + strings.Count(id, "'")
}

// propertyXPathLen is the length that a property adds to its handle's xpath.
func propertyXPathLen(member, name string) int {
	n := len("/public-properties[@name='']")
	if member == privateMember {
		n = len("/additional-properties[@name='']")
	}
	return n + len(name) + strings.Count(name, "'")
}

// utf16Len counts as Java's strings do.
func utf16Len(s string) int {
	n := 0
	for _, c := range s {
		n++
		if c > 0xffff {
			n++
		}
	}
	return n
}

// trim cuts what Java's String.trim cuts.
func trim(s string) string {
	for len(s) > 0 && s[0] <= ' ' {
		s = s[1:]
	}
	for len(s) > 0 && s[len(s)-1] <= ' ' {
		s = s[:len(s)-1]
	}
	return s
}

// trimBlank is trim, and "" for a text of nothing but white space of any
// script: a no-break space must not pass for an alternate id.
func trimBlank(s string) string {
	s = trim(s)
	if strings.IndexFunc(s, func(c rune) bool { return !unicode.IsSpace(c) }) < 0 {
		return ""
	}
	return s
}

// clip bounds what a text for people quotes.
func clip(s string) string {
	const most = 256
	if len(s) <= most {
		return s
	}
	n := most
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
