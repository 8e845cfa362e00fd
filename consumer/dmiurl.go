package consumer

import (
	"net/netip"
	"strings"
	"unicode"

	"ncmp-inventory/inventory"
)

// checkDMINames judges the DMI names as NCMP does: each is blank or an http(s)
// URL with a host. The texts and details are NCMP's.
func checkDMINames(names *inventory.DMINames) *inventory.Rejection {
	for i, name := range names {
		if trimBlank(name.Value) == "" {
			continue
		}
		if problem := checkDMIURL(name.Value); problem != "" {
			return &inventory.Rejection{
				Code:    inventory.CodeUnknownError,
				Text:    "Invalid DMI plugin URL for " + dmiMembers[i],
				Details: problem + ": " + clip(visible(withoutUserInfo(name.Value))),
			}
		}
	}
	return nil
}

func checkDMIURL(s string) string {
	u, ok := parseJavaURI(s)
	switch {
	case !ok:
		return "URL is not valid"
	case u.scheme != "http" && u.scheme != "https":
		return "Only http or https schemes are allowed, got"
	case u.host == "":
		return "URL must contain a valid host"
	}
	return ""
}

// withoutUserInfo hides credentials: details go into outcomes.
func withoutUserInfo(s string) string {
	start := strings.Index(s, "//")
	if start < 0 {
		return s
	}
	rest := s[start+2:]
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		return s[:start+2] + "…" + s[start+2+at:]
	}
	return s
}

// javaURI is what java.net.URI makes of a text, as far as the check needs it.
type javaURI struct{ scheme, host string }

// Character sets of java.net.URI (RFC 2396 and its additions). Non-ASCII
// characters and %-escapes are allowed wherever a set is checked with escapes.
const (
	uriAlpha    = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	uriDigits   = "0123456789"
	uriAlphanum = uriAlpha + uriDigits
	uriUnres    = uriAlphanum + "-_.!~*'()"
	uriAny      = uriUnres + ";/?:@&=+$,[]"
	uriPath     = uriUnres + ":@&=+$,;/"
	uriUserinfo = uriUnres + ";:&=+$,"
	uriRegName  = uriUnres + "$,;:@&=+"
	uriServer   = uriUserinfo + "@.:[]-" // superset, as Java's own first look
)

// parseJavaURI follows java.net.URI: a text it refuses is not ok, and a host
// it does not take for one is "" (a registry-based authority; an underscore
// suffices). Go's own parser has other rules.
func parseJavaURI(s string) (u javaURI, ok bool) {
	rest := s
	if i := strings.IndexAny(s, "/?#:"); i >= 0 && s[i] == ':' {
		u.scheme, rest = s[:i], s[i+1:]
		if u.scheme == "" || !only(u.scheme[:1], uriAlpha, false) || !only(u.scheme, uriAlphanum+"+-.", false) {
			return u, false
		}
		if !strings.HasPrefix(rest, "/") { // opaque
			part, fragment, _ := strings.Cut(rest, "#")
			return u, part != "" && only(part, uriAny, true) && only(fragment, uriAny, true)
		}
	}
	rest, fragment, _ := strings.Cut(rest, "#")
	hasFragment := len(rest) < len(s) && strings.Contains(s, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	if !only(fragment, uriAny, true) || !only(query, uriAny, true) {
		return u, false
	}
	if after, found := strings.CutPrefix(rest, "//"); found {
		authority, tail := after, ""
		if i := strings.IndexByte(after, '/'); i >= 0 {
			authority, tail = after[:i], after[i:]
		}
		if authority == "" {
			if tail == "" && !hasQuery && !hasFragment {
				return u, false
			}
		} else if u.host, ok = javaHost(authority); !ok {
			return u, false
		}
		rest = tail
	}
	return u, only(rest, uriPath, true)
}

// javaHost parses an authority; the host is "" if it is registry-based.
func javaHost(authority string) (host string, ok bool) {
	registry := only(authority, uriRegName, true)
	if host, ok = serverHost(authority); ok {
		return host, true
	}
	return "", registry
}

func serverHost(s string) (string, bool) {
	set := uriServer
	if strings.Contains(s, "]") {
		set += "%" // a scope id
	}
	if !only(s, set, true) {
		return "", false
	}
	if i := strings.IndexByte(s, '@'); i >= 0 {
		if !only(s[:i], uriUserinfo, true) {
			return "", false
		}
		s = s[i+1:]
	}
	host, port := s, ""
	if strings.HasPrefix(s, "[") {
		i := strings.IndexByte(s, ']')
		if i < 0 {
			return "", false
		}
		if a, err := netip.ParseAddr(s[1:i]); err != nil || !a.Is6() {
			return "", false
		}
		host, port = s[:i+1], s[i+1:]
	} else {
		if i := strings.IndexByte(s, ':'); i >= 0 {
			host, port = s[:i], s[i:]
		}
		if !isJavaIPv4(host) && !isJavaHostname(host) {
			return "", false
		}
	}
	if port != "" {
		if port[0] != ':' {
			return "", false
		}
		port = port[1:]
		if !only(port, uriDigits, false) || len(strings.TrimLeft(port, "0")) > 10 ||
			len(strings.TrimLeft(port, "0")) == 10 && strings.TrimLeft(port, "0") > "2147483647" {
			return "", false
		}
	}
	return host, true
}

func isJavaIPv4(s string) bool {
	if strings.Count(s, ".") != 3 {
		return false
	}
	for p := range strings.SplitSeq(s, ".") {
		n := strings.TrimLeft(p, "0")
		if p == "" || !only(p, uriDigits, false) || len(n) > 3 || len(n) == 3 && n > "255" {
			return false
		}
	}
	return true
}

// isJavaHostname: labels of letters, digits and inner hyphens; the last of
// several begins with a letter; one dot may follow.
func isJavaHostname(s string) bool {
	s = strings.TrimSuffix(s, ".")
	for l := range strings.SplitSeq(s, ".") {
		if l == "" || !only(l, uriAlphanum+"-", false) || l[0] == '-' || l[len(l)-1] == '-' {
			return false
		}
	}
	dot := strings.LastIndexByte(s, '.')
	return dot < 0 || only(s[dot+1:dot+2], uriAlpha, false)
}

// only reports whether s consists of characters of set and, with escapes, of
// %XX and what Java calls other characters.
func only(s, set string, escapes bool) bool {
	for i, c := range s {
		switch {
		case c < 0x80 && strings.IndexByte(set, byte(c)) >= 0:
		case !escapes:
			return false
		case c == '%':
			if len(s) < i+3 || !only(s[i+1:i+3], "0123456789abcdefABCDEF", false) {
				return false
			}
		case c > 0x80 && !unicode.Is(unicode.Z, c) && !unicode.IsControl(c):
		default:
			return false
		}
	}
	return true
}
