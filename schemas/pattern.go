package schemas

import (
	"fmt"
	"regexp"
	"strings"
)

// pattern is one compiled pattern statement and the refusal that names it.
type pattern struct {
	re      *regexp.Regexp
	refusal error
}

func (c *compiler) pattern(xsd string) (*regexp.Regexp, error) {
	if re := c.patterns[xsd]; re != nil {
		return re, nil
	}
	expr, err := translate(xsd)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", xsd, err)
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, fmt.Errorf("pattern %q is not supported: %w", xsd, err)
	}
	c.patterns[xsd] = re
	return re, nil
}

// escapes are XSD's multi-character escapes as the inside of an RE2 class, and
// the inside of the class of all others.
var escapes = map[byte][2]string{
	'd': {`\p{Nd}`, `\P{Nd}`},
	's': {` \t\n\r`, `\x00-\x08\x0b\x0c\x0e-\x1f!-\x{10FFFF}`},
	'w': {`\p{L}\p{M}\p{N}\p{S}`, `\p{P}\p{Z}\p{C}`},
	'i': {`\p{L}_:`, ``},
	'c': {`\p{L}\p{M}\p{N}_:.\-`, ``},
}

// blocks are the Unicode blocks that YANG modules in the field name.
var blocks = map[string][2]string{
	"IsBasicLatin":        {`\x00-\x7f`, `\x{80}-\x{10FFFF}`},
	"IsLatin-1Supplement": {`\x{80}-\x{ff}`, `\x00-\x7f\x{100}-\x{10FFFF}`},
}

// translate turns an XSD regular expression into RE2's syntax. XSD anchors
// without being asked, gives ^ and $ no meaning outside classes, and reads \d,
// \s, \w and the dot by Unicode. Class subtraction has no counterpart.
func translate(xsd string) (string, error) {
	var b strings.Builder
	b.WriteString(`\A(?:`)
	class, first := false, false // inside a class; nothing of it written yet
	for i := 0; i < len(xsd); i++ {
		ch := xsd[i]
		opening := false
		switch {
		case ch == '\\':
			n, err := escape(&b, xsd[i+1:], class)
			if err != nil {
				return "", err
			}
			i += n
		case class && ch == '[':
			if xsd[i-1] == '-' {
				return "", fmt.Errorf("class subtraction is not supported")
			}
			b.WriteString(`\[`)
		case ch == '[':
			class, opening = true, true
			b.WriteByte(ch)
			if strings.HasPrefix(xsd[i+1:], "^") {
				b.WriteByte('^')
				i++
			}
		case class && ch == ']':
			if first {
				return "", fmt.Errorf("empty class")
			}
			class = false
			b.WriteByte(ch)
		case !class && (ch == '^' || ch == '$'):
			b.WriteByte('\\')
			b.WriteByte(ch)
		case !class && ch == '.':
			b.WriteString(`[^\n\r]`)
		case !class && ch == '(' && strings.HasPrefix(xsd[i+1:], "?"):
			return "", fmt.Errorf("(? is not supported")
		default:
			b.WriteByte(ch)
		}
		first = opening
	}
	b.WriteString(`)\z`)
	return b.String(), nil
}

// escape writes what stands after a backslash and says how long it is.
func escape(b *strings.Builder, rest string, class bool) (int, error) {
	if rest == "" {
		return 0, fmt.Errorf("ends in a backslash")
	}
	set := func(in, out string) {
		if class {
			b.WriteString(in)
		} else {
			b.WriteString(out)
		}
	}
	ch := rest[0]
	lower := ch | 0x20
	switch {
	case lower == 'p':
		name, _, ok := strings.Cut(strings.TrimPrefix(rest[1:], "{"), "}")
		if !ok || rest[1] != '{' {
			return 0, fmt.Errorf(`\%c without {…}`, ch)
		}
		if sets, ok := blocks[name]; ok {
			s := sets[0]
			if ch == 'P' {
				s = sets[1]
			}
			set(s, "["+s+"]")
		} else {
			b.WriteString(`\` + rest[:len(name)+3])
		}
		return len(name) + 3, nil
	case escapes[lower][0] != "":
		s := escapes[lower]
		switch {
		case ch == lower:
			set(s[0], "["+s[0]+"]")
		case !class:
			b.WriteString("[^" + s[0] + "]")
		case s[1] != "":
			b.WriteString(s[1])
		default:
			return 0, fmt.Errorf(`\%c inside a class is not supported`, ch)
		}
	case ch == 'n' || ch == 'r' || ch == 't':
		b.WriteString(`\` + rest[:1])
	case ch < 0x80 && !('0' <= ch && ch <= '9') && !('a' <= lower && lower <= 'z') && ch > ' ' && ch != '_':
		b.WriteString(`\` + rest[:1]) // punctuation stands for itself
	default:
		return 0, fmt.Errorf("unknown escape at %q", `\`+rest[:1])
	}
	return 1, nil
}
