package schemas_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/schemas"
)

const zoo = `
typedef percent { type decimal64 { fraction-digits 2; range "0..100"; } }
identity animal; identity cat { base animal; } identity lion { base cat; }
container zoo {
  leaf string { type string; }
  leaf short { type string { length "1..3 | 5"; } }
  leaf hex { type string { pattern '[0-9a-f]+'; pattern '.{2,}'; } }
  leaf bool { type boolean; }
  leaf i8 { type int8; }
  leaf i64 { type int64; }
  leaf u64 { type uint64; }
  leaf some { type int32 { range "-5..-1 | 10..max"; } }
  leaf dec { type decimal64 { fraction-digits 3; } }
  leaf fine { type decimal64 { fraction-digits 18; } }
  leaf pct { type percent; }
  leaf enum { type enumeration { enum one; enum "two words"; } }
  leaf bits { type bits { bit c { position 2; } bit a { position 0; } bit b; } }
  leaf ident { type identityref { base animal; } }
  leaf bin { type binary { length 3; } }
  leaf empty { type empty; }
  leaf inst { type instance-identifier; }
  leaf union { type union { type int8; type boolean; type enumeration { enum x; } type string { length 5; } } }
  leaf ref { type leafref { path "/m:zoo/m:cage[m:k = current()/../string]/m:v"; } }
  leaf-list strings { type string; }
  leaf-list ints { type int64; }
  leaf-list decs { type decimal64 { fraction-digits 2; } }
  leaf-list bools { type boolean; }
  leaf-list user { type string; ordered-by user; }
  list cage { key k; leaf k { type string; } leaf v { type uint8; } choice c { case d { leaf w { type leafref { path "../k"; } } } } }
}`

func TestLeafAppendsTheStoredForm(t *testing.T) {
	t.Parallel()
	m := mustLoad(t, module(zoo))
	for _, c := range []struct{ leaf, value, want string }{
		{"string", "", `""`}, {"string", `a"b\c` + "\n<é😀>", `"a\"b\\c\n<é😀>"`},
		{"short", "äöü", `"äöü"`}, {"short", "12345", `"12345"`},
		{"hex", "0f", `"0f"`},
		{"bool", "true", "true"}, {"bool", "false", "false"},
		{"i8", "-128", "-128"}, {"i8", "+7", "7"}, {"i8", "-0", "0"}, {"i8", "0", "0"},
		{"i64", "-9223372036854775808", "-9223372036854775808"}, {"i64", "9223372036854775807", "9223372036854775807"},
		{"u64", "18446744073709551615", "18446744073709551615"},
		{"some", "-5", "-5"}, {"some", "2147483647", "2147483647"},
		{"dec", "3", "3.0"}, {"dec", "-1.50", "-1.5"}, {"dec", "+0.001", "0.001"}, {"dec", "-0.0", "0.0"}, {"dec", "1.5000", "1.5"},
		{"dec", "9223372036854775.807", "9223372036854775.807"}, {"dec", "-9223372036854775.808", "-9223372036854775.808"},
		{"fine", "-9.223372036854775808", "-9.223372036854775808"},
		{"pct", "99.99", "99.99"}, {"pct", "100", "100.0"},
		{"enum", "two words", `"two words"`},
		{"bits", "c a", `["a","c"]`}, {"bits", "", `[]`}, {"bits", " b\n", `["b"]`},
		{"ident", "lion", `"m:lion"`}, {"ident", "m:cat", `"m:cat"`},
		{"bin", "AQID", `"AQID"`}, {"empty", "", "[null]"}, {"inst", "/m:zoo", `"/m:zoo"`},
		{"union", "7", "7"}, {"union", "300", ""}, {"union", "true", "true"}, {"union", "x", `"x"`}, {"union", "12345", `"12345"`},
		{"ref", "255", "255"}, {"cage/w", "k", `"k"`},
		// Refused.
		{"string", "a\x00", ""}, {"string", "\xff", ""}, {"short", "", ""}, {"short", "1234", ""},
		{"hex", "f", ""}, {"hex", "0F", ""}, {"hex", "xx0fxx", ""},
		{"bool", "True", ""}, {"bool", "1", ""}, {"bool", "", ""},
		{"i8", "128", ""}, {"i8", "", ""}, {"i8", "-", ""}, {"i8", "1.0", ""}, {"i8", "1e1", ""}, {"i8", "0x1", ""}, {"i8", "007", ""}, {"i8", " 1", ""}, {"i8", "99999999999999999999999", ""},
		{"u64", "-1", ""}, {"u64", "18446744073709551616", ""}, {"i64", "9223372036854775808", ""},
		{"some", "0", ""}, {"dec", "1.2345", ""}, {"dec", ".5", ""}, {"dec", "5.", ""}, {"dec", "1e3", ""}, {"dec", "1.2.3", ""}, {"dec", "9223372036854775.808", ""},
		{"pct", "100.01", ""}, {"pct", "-1", ""}, {"enum", "two", ""}, {"bits", "a a", ""}, {"bits", "d", ""},
		{"ident", "animal", ""}, {"ident", "x:cat", ""}, {"bin", "AQIDBA==", ""}, {"bin", "?", ""}, {"empty", "x", ""}, {"ref", "256", ""},
	} {
		leaf, err := m.Leaf("/zoo/" + c.leaf)
		require.NoError(t, err, c.leaf)
		got, err := leaf.Append([]byte("before"), c.value)
		require.Equal(t, "before"+c.want, string(got), "%s %q", c.leaf, c.value)
		if c.want != "" {
			require.NoError(t, err, "%s %q", c.leaf, c.value)
			continue
		}
		var refused *schemas.ValueError
		require.ErrorAs(t, err, &refused, "%s %q", c.leaf, c.value)
		require.Equal(t, "/zoo/"+c.leaf, refused.Path)
	}
}

func TestLeafErrorsDoNotQuoteTheValue(t *testing.T) {
	t.Parallel()
	m := mustLoad(t, module(zoo))
	for _, name := range []string{"short", "hex", "bool", "i8", "u64", "dec", "pct", "enum", "bits", "ident", "bin", "empty", "union", "ref"} {
		leaf, err := m.Leaf("/zoo/" + name)
		require.NoError(t, err)
		_, err = leaf.Append(nil, "hush-hush")
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "hush", name)
	}
}

func TestLeafListsAreSets(t *testing.T) {
	t.Parallel()
	m := mustLoad(t, module(zoo))
	for _, c := range []struct{ leaf, values, want string }{
		{"strings", "b a B a", `["B","a","b"]`},
		{"strings", "\uffff 😀 \ue000", `["😀","` + "\ue000" + `","` + "\uffff" + `"]`}, // Java sorts by UTF-16
		{"strings", `a"1 a"10 a`, `["a","a\"1","a\"10"]`},
		{"strings", "", `[]`},
		{"ints", "10 9 -1 -10 0 9", "[-10,-1,0,9,10]"},
		{"decs", "1.5 1.25 -1.5 10 -1.25", "[-1.5,-1.25,1.25,1.5,10.0]"},
		{"bools", "true false true", "[false,true]"},
		{"user", "b a b c a", `["b","a","c"]`},
	} {
		leaf, err := m.Leaf("/zoo/" + c.leaf)
		require.NoError(t, err)
		got, err := leaf.AppendList([]byte("x"), strings.Fields(c.values))
		require.NoError(t, err)
		require.Equal(t, "x"+c.want, string(got))
		_, err = leaf.Append(nil, "a")
		require.ErrorContains(t, err, "is a leaf-list")
	}
	leaf, err := m.Leaf("/zoo/i8")
	require.NoError(t, err)
	_, err = leaf.AppendList(nil, nil)
	require.ErrorContains(t, err, "is no leaf-list")
}

func TestPatternsAreXSD(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{`a|bc`, []string{"a", "bc"}, []string{"ab", "abc", ""}},
		{`^a$`, []string{"^a$"}, []string{"a"}},
		{`[^a-c\-]+`, []string{"xyz", "^"}, []string{"a", "-", ""}},
		{`\d+`, []string{"12", "٣"}, []string{"x"}},
		{`[\d\s]+`, []string{"1 2"}, []string{"\v"}},
		{`\w+`, []string{"aé1+"}, []string{"a b", "a.b"}},
		{`\W\S\D`, []string{".xx"}, []string{"xxx", ". x", ".x1"}},
		{`[\D\S]`, []string{"x"}, nil},
		{`\i\c*`, []string{"_a-1.b", ":x"}, []string{"1a", "a b"}},
		{`[\i\c]+`, []string{"1a"}, []string{" "}},
		{`.`, []string{"x", "\t", "é"}, []string{"\n", "\r", "xx"}},
		{`\p{L}\P{L}`, []string{"é1"}, []string{"11", "éé"}},
		{`\p{IsBasicLatin}*`, []string{"ab"}, []string{"é"}},
		{`[\P{IsBasicLatin}x]`, []string{"é", "x"}, []string{"y"}},
		{`\.\\\[\]\(\)\{\}\*\+\?\|\^\-\n\t`, []string{`.\[](){}*+?|^-` + "\n\t"}, nil},
		{`[[\]]+`, []string{"[]"}, []string{"x"}},
		{`(([0-9]|[1-9][0-9])\.){2}[0-9]`, []string{"10.9.8"}, []string{"10.9", "x10.9.8"}},
	} {
		m := mustLoad(t, module("leaf l { type string { pattern '"+c.pattern+"'; } }"))
		leaf, err := m.Leaf("/l")
		require.NoError(t, err)
		for _, s := range c.yes {
			_, err := leaf.Append(nil, s)
			require.NoError(t, err, "%s %q", c.pattern, s)
		}
		for _, s := range c.no {
			_, err := leaf.Append(nil, s)
			require.ErrorContains(t, err, "does not match the pattern", "%s %q", c.pattern, s)
		}
	}
	for _, p := range []string{`a\`, `\b`, `\1`, `\_`, `\p`, `\p{`, `\pL`, `\p{Nope}`, `[]`, `[]a]`, `[^]`, `(?:a)`, `(?i)a`, `a**`, `[z-a]`, `[\I]`, `[a-z-[b]]`, `\Qa\E`} {
		_, err := schemas.Load(module("leaf l { type string { pattern '" + p + "'; } }"))
		require.ErrorContains(t, err, "m.yang:3:1: pattern", p)
	}
}

func BenchmarkLeafAppend(b *testing.B) {
	m := mustLoad(b, module(zoo))
	inv, err := schemas.InventoryModel()
	require.NoError(b, err)
	for _, c := range []struct {
		name, path, value string
		m                 *schemas.Model
	}{
		{"string", "/dmi-registry/cm-handles/alternate-id", "/SubNetwork=Lab/ManagedElement=17", inv},
		{"boolean", "/dmi-registry/cm-handles/state/data-sync-enabled", "false", inv},
		{"integer", "/zoo/u64", "18446744073709551615", m},
		{"enumeration", "/zoo/enum", "two words", m},
		{"decimal64", "/zoo/dec", "-1.50", m},
	} {
		b.Run(c.name, func(b *testing.B) {
			leaf, err := c.m.Leaf(c.path)
			require.NoError(b, err)
			buf := make([]byte, 0, 128)
			b.ReportAllocs()
			for b.Loop() {
				if buf, err = leaf.Append(buf[:0], c.value); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestLeafAppendAllocatesNothing(t *testing.T) {
	m := mustLoad(t, module(zoo))
	for path, value := range map[string]string{"string": `a "b" é`, "bool": "true", "i64": "-12", "enum": "one", "short": "abc"} {
		leaf, err := m.Leaf("/zoo/" + path)
		require.NoError(t, err)
		buf := make([]byte, 0, 64)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			buf, err = leaf.Append(buf[:0], value)
		}), path)
		require.NoError(t, err)
	}
}
