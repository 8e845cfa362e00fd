package schemas_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/schemas"
)

// module wraps statements in a module m.
func module(body string) map[string][]byte {
	return map[string][]byte{"m.yang": []byte("module m {\n yang-version 1.1; namespace urn:m; prefix m;\n" + body + "\n}")}
}

func mustLoad(t testing.TB, sources map[string][]byte) *schemas.Model {
	t.Helper()
	m, err := schemas.Load(sources)
	require.NoError(t, err)
	return m
}

func TestInventoryModuleKeepsWhatCPSReads(t *testing.T) {
	t.Parallel()
	mod := schemas.Inventory()
	require.Equal(t, "dmi-registry", mod.Name)
	require.Equal(t, "2026-01-28", mod.Revision)
	require.Equal(t, "dmi-registry@2026-01-28.yang", mod.FileName())
	require.Len(t, mod.Checksum, 64)
	for _, want := range []string{`namespace "org:onap:cps:ncmp";`, "prefix dmi-reg;", "revision 2026-01-28 {"} {
		require.Contains(t, string(mod.Content), want)
	}
	model, err := schemas.InventoryModel()
	require.NoError(t, err)
	for path, want := range map[string]string{
		"id": `"true"`, "dmi-service-name": `"true"`, "dmi-data-service-name": `"true"`,
		"dmi-model-service-name": `"true"`, "dmi-datajobs-read-service": `"true"`,
		"dmi-datajobs-write-service": `"true"`, "module-set-tag": `"true"`, "alternate-id": `"true"`,
		"data-producer-identifier":   `"true"`,
		"additional-properties/name": `"true"`, "additional-properties/value": `"true"`,
		"public-properties/name": `"true"`, "public-properties/value": `"true"`,
		"state/cm-handle-state": `"true"`, "state/last-update-time": `"true"`,
		"state/data-sync-enabled":  `true`,
		"state/lock-reason/reason": `"true"`, "state/lock-reason/details": `"true"`,
		"state/datastores/operational/sync-state":     `"true"`,
		"state/datastores/operational/last-sync-time": `"true"`,
		"state/datastores/running/sync-state":         `"true"`,
		"state/datastores/running/last-sync-time":     `"true"`,
	} {
		leaf, err := model.Leaf("/dmi-registry/cm-handles/" + path)
		require.NoError(t, err, path)
		got, err := leaf.Append(nil, "true")
		require.NoError(t, err, path)
		require.Equal(t, want, string(got), path)
	}
	for _, path := range []string{"", "dmi-registry", "/", "/dmi-registry", "/dmi-registry/cm-handles/dmi-properties", "/dmi-registry//id"} {
		_, err := model.Leaf(path)
		require.Error(t, err, path)
	}
}

// bomb builds n groupings of which each uses the one before it twice.
func bomb(n int) string {
	var b strings.Builder
	b.WriteString("grouping g0 { leaf x { type string; } }\n")
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "grouping g%d { container a { uses g%d; } container b { uses g%d; } }\n", i, i-1, i-1)
	}
	fmt.Fprintf(&b, "uses g%d;", n)
	return b.String()
}

// lineage builds n identities, each derived from the one before it.
func lineage(n int) string {
	var b strings.Builder
	b.WriteString("identity i0;\n")
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "identity i%d { base i%d; }\n", i, i-1)
	}
	return b.String()
}

// killers are sources that end goyang's process, hang it, or that it gets
// silently wrong, and what is said about them.
var killers = []struct{ name, body, want string }{
	{"grouping of itself", "grouping g { uses g; }", "m.yang:3:1: grouping g leads back to itself"},
	{"groupings of each other", "grouping g { uses h; }\ngrouping h { container c { uses g; } }", "m.yang:3:1: grouping g leads back to itself"},
	{"typedef of itself", "typedef t { type t; }", "m.yang:3:1: typedef t leads back to itself"},
	{"typedef loop through a union", "typedef t { type union { type string; type u; } }\ntypedef u { type t; }", "leads back to itself"},
	{"typedef loop by own prefix", "container c { typedef t { type m:t; } leaf l { type t; } }", "m.yang:3:15: typedef t leads back to itself"},
	{"identity loop", "identity a { base b; }\nidentity b { base a; }", "leads back to itself"},
	{"grouping bomb", bomb(22), "expands to more than"},
	{"chain of groupings", bomb(40), "more than"},
	{"identity chain", lineage(22), "too many identities"},
	{"long identity chain", lineage(2000), "in a row"},
	{"typedef named as a built-in", "typedef string { type string; }", "m.yang:3:1: typedef string has the name of a built-in type"},
	{"two groupings of one name", "grouping g { leaf a { type string; } }\ngrouping g { uses g; }", "grouping g is also at m.yang:3:1"},
	{"refine", "grouping g { leaf a { type string; } }\nuses g { refine a { default x; } }", "m.yang:4:10: refine is not supported"},
	{"augment in uses", "grouping g { container c; }\nuses g { augment c { leaf a { type string; } } }", "m.yang:4:10: augment inside uses is not supported"},
	{"modifier", "leaf a { type string { pattern x { modifier invert-match; } } }", "m.yang:3:36: pattern modifier is not supported"},
	{"choice in choice", "choice a { choice b { leaf l { type string; } } }", "m.yang:3:12: choice directly inside choice is not supported"},
	{"no such import", "import x { prefix x; }", "m.yang:3:1: imported module x is not among the sources"},
	{"no such include", "include x;", "m.yang:3:1: included submodule x is not among the sources"},
	{"import without prefix", "import m;", "m.yang:3:1: import m has no usable prefix"},
	{"import of itself", "import m { prefix me; }", "module m leads back to itself"},
	{"unknown grouping", "uses nowhere;", "m.yang:3:1: unknown grouping nowhere"},
	{"reference that is none", "uses a:b:c;", `m.yang:3:1: uses "a:b:c" is no reference`},
	{"prefix twice", "import x { prefix m; }", "m.yang:3:12: prefix m is used twice"},
	{"belongs-to in a module", "belongs-to x { prefix x; }", "belongs-to in a module"},
	{"relative augment", "augment c { leaf a { type string; } }", "does not start with /"},
	{"leafref by an unknown prefix", "leaf a { type leafref { path /p:b; } }", `unknown prefix "p"`},
	{"leafref with an open predicate", `leaf a { type leafref { path "../b[x = 1"; } }`, "[ without ]"},
	{"union of a broken member", "leaf a { type union { type int8; type leafref { path ../b; } } }", "m.yang:3:1: leafref ../b"},
	{"unknown type", "leaf a { type nowhere; }", "m.yang:3:10: unknown typedef nowhere"},
	{"unknown prefix", "leaf a { type p:t; }", "m.yang:3:10: unknown typedef p:t"},
	{"leaf without type", "leaf a;", "m.yang:3:1: leaf a has no type"},
	{"name that is none", `leaf "a'b" { type string; }`, `m.yang:3:1: leaf "a'b" is no identifier`},
	{"two nodes of one name", "leaf a { type string; }\nleaf a { type string; }", "m.yang"},
	{"node beside a choice's of one name", "leaf a { type string; }\nchoice c { case x { leaf a { type string; } } }", "a second node named a"},
	{"list key that is no leaf", "list l { key k; leaf x { type string; } }", "m.yang:3:1: key k of list l is not one leaf of it"},
	{"list key twice", "list l { key \"k k\"; leaf k { type string; } }", "key k of list l"},
	{"leafref to nowhere", "leaf a { type leafref { path ../b; } }", `m.yang:3:1: leafref ../b: no node "b"`},
	{"leafref to a container", "leaf a { type leafref { path ../b; } } container b;", "does not lead to a leaf"},
	{"leafref above the root", "leaf a { type leafref { path ../../../b; } }", "leads above the root"},
	{"leafref to itself", "leaf a { type leafref { path ../a; } }", "leafref leads back to itself"},
	{"leafrefs to each other", "leaf a { type leafref { path ../b; } } leaf b { type leafref { path ../a; } }", "leads back to itself"},
	{"class subtraction", `leaf a { type string { pattern "[a-z-[aeiou]]"; } }`, "class subtraction is not supported"},
	{"broken pattern", `leaf a { type string { pattern "(a"; } }`, "m.yang:3:1: pattern"},
	{"huge repeat", `leaf a { type string { pattern "a{5000}"; } }`, "invalid repeat count"},
	{"bad range", `leaf a { type uint8 { range "1..999"; } }`, "m.yang:3:23: bad range"},
	{"augment of nothing", "augment /m:x { leaf a { type string; } }", "m.yang:3:1: augment /m:x not found"},
	{"deep nesting", strings.Repeat("container c {", 300) + strings.Repeat("}", 300), "nested deeper than"},
	{"unknown statement", "nonsense x;", "m.yang:3:1"},
	{"unclosed", "container c {", "missing 1 closing brace"},
}

func TestLoadRefusesWithAPlace(t *testing.T) {
	t.Parallel()
	for _, k := range killers {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			m, err := schemas.Load(module(k.body))
			require.ErrorContains(t, err, k.want)
			require.Nil(t, m)
		})
	}
}

func TestLoadRefusesSources(t *testing.T) {
	t.Parallel()
	const good = "module m { namespace urn:m; prefix m; }"
	for name, c := range map[string]struct {
		sources map[string]string
		want    string
	}{
		"no text":             {map[string]string{"a.yang": "module m { prefix \xff; }"}, "a.yang: not UTF-8 text"},
		"empty":               {map[string]string{"a.yang": " "}, "a.yang:1:1: want one module"},
		"two modules":         {map[string]string{"a.yang": good + good}, "a.yang:1:1: want one module"},
		"no module":           {map[string]string{"a.yang": "container c;"}, "want one module"},
		"one module twice":    {map[string]string{"a.yang": good, "b.yang": good}, "b.yang:1:1: module m is also at a.yang:1:1"},
		"no namespace":        {map[string]string{"a.yang": "module m { prefix m; }"}, "a.yang:1:1: module m has no namespace"},
		"no prefix":           {map[string]string{"a.yang": "module m { namespace urn:m; }"}, "a.yang:1:1: module m has no prefix"},
		"lone submodule":      {map[string]string{"a.yang": "submodule s { belongs-to m { prefix m; } }"}, "a.yang:1:1: belongs to module m"},
		"submodule of nobody": {map[string]string{"a.yang": "submodule s { prefix s; }"}, "has no belongs-to"},
		"too long":            {map[string]string{"a.yang": strings.Repeat("a{", 2<<20)}, "a.yang: 4194304 bytes"},
		"import loop": {map[string]string{
			"a.yang": "module a { namespace urn:a; prefix a; import b { prefix b; } }",
			"b.yang": "module b { namespace urn:b; prefix b; import a { prefix a; } }",
		}, "leads back to itself"},
		"one namespace twice": {map[string]string{
			"a.yang": "module a { namespace urn:x; prefix a; leaf l { type string; } }",
			"b.yang": "module b { namespace urn:x; prefix b; leaf k { type string; } }",
		}, "namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sources := map[string][]byte{}
			for f, s := range c.sources {
				sources[f] = []byte(s)
			}
			_, err := schemas.Load(sources)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestLoadTakesModuleSets(t *testing.T) {
	t.Parallel()
	m := mustLoad(t, map[string][]byte{
		"a.yang": []byte("\ufeffmodule a { yang-version 1.1; namespace urn:a; prefix a; include s; import b { prefix x; revision-date 2020-01-01; }" +
			" container top { uses x:g; uses from-sub; choice c { leaf one { type string; } case two { leaf two { type x:percent; } } } action act { input { leaf in { type string; } } } } rpc r; notification n { leaf l { type string; } } }"),
		"s.yang": []byte("submodule s { yang-version 1.1; belongs-to a { prefix a; } grouping from-sub { leaf sub { type int8; } } }"),
		"b.yang": []byte("module b { yang-version 1.1; namespace urn:b; prefix b; revision 2024-01-01; typedef percent { type uint8 { range 0..100; } } grouping g { leaf shared { type percent; } } }"),
		"c.yang": []byte("module c { yang-version 1.1; namespace urn:c; prefix c; import a { prefix a; } augment /a:top { leaf more { type leafref { path ../a:shared; } } leaf abs { type leafref { path /a:top/a:two; } } leaf chosen { type leafref { path ../a:two; } } }" +
			" container own { choice x { case y { leaf up { type leafref { path ../../own/flag; } } } } leaf flag { type b:percent; } leaf bare { type leafref { path /own/flag; } } } import b { prefix b; } }"),
	})
	for path, ok := range map[string]bool{
		"/top/shared": true, "/top/sub": true, "/top/one": true, "/top/two": true, "/top/more": true,
		"/top/abs": true, "/top/chosen": true, "/own/up": true, "/own/bare": true,
		"/top/act": false, "/r": false, "/n/l": false, "/top/c": false,
	} {
		leaf, err := m.Leaf(path)
		require.Equal(t, ok, err == nil, path)
		if ok && path != "/top/sub" && path != "/top/one" {
			_, err := leaf.Append(nil, "101")
			require.ErrorContains(t, err, "leaf "+path+": is not in 0..100")
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, k := range killers {
		f.Add(string(module(k.body)["m.yang"]))
	}
	f.Add(string(schemas.Inventory().Content))
	f.Add(string(schemas.BenchDevice().Content))
	f.Fuzz(func(t *testing.T, source string) {
		m, err := schemas.Load(map[string][]byte{"m.yang": []byte(source)})
		if (m == nil) == (err == nil) {
			t.Fatalf("model %v and error %v", m, err)
		}
	})
}
