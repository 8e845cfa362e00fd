package schemas_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/schemas"
)

// show writes nodes a line each: parent, xpath, leaves.
func show(nodes []schemas.DataNode) string {
	var b strings.Builder
	for _, n := range nodes {
		fmt.Fprintf(&b, "%d %s %s\n", n.Parent, n.XPath, n.Leaves)
	}
	return b.String()
}

const shop = `
container shop {
  presence "open";
  leaf name { type string; }
  leaf-list tag { type string; }
  leaf gone { type empty; }
  container premises { list addresses { key "street house-number"; leaf house-number { type uint16; } leaf street { type string; } leaf zip { type string; } } }
  list books { key title; leaf title { type string; } leaf price { type decimal64 { fraction-digits 2; } } list editions { key e; leaf e { type boolean; } } }
  list twins { key "key key1"; leaf key { type string; } leaf key1 { type string; } }
  list keyless { leaf x { type string; } }
  anydata any;
  list odd { key b; leaf b { type bits { bit x; } } }
  choice delivery { case post { leaf stamp { type string; } leaf box { type string; } } case van { container van; } }
  action open;
}`

func TestNodes(t *testing.T) {
	t.Parallel()
	m := mustLoad(t, module(shop))
	for _, c := range []struct{ name, parent, doc, want string }{
		{"container", "", `{"shop":{}}`, "-1 /shop {}\n"},
		{"empty array as container", "/", `{"m:shop":[ ]}`, "-1 /shop {}\n"},
		{"unknown word before the colon", "", `{"word:shop":{"pfx:name":"n"}}`, `-1 /shop {"name":"n"}` + "\n"},
		{"leaves and children mixed", "", `{"shop":{"tag":["b","a","b"],"books":[{"price":7,"editions":[{"e":true}],"title":"T"}],"name":1.50,"gone":[null]}}`,
			`-1 /shop {"tag":["a","b"],"name":"1.50","gone":[null]}
0 /shop/books[@title='T'] {"price":7.0,"title":"T"}
1 /shop/books[@title='T']/editions[@e='true'] {"e":true}
`},
		{"one object as list, one scalar as leaf-list", "/shop", `{"books":{"title":"I'm \"it\"\n[x]/"}}`,
			"-1 /shop/books[@title='I''m \"it\"\n[x]/'] " + `{"title":"I'm \"it\"\n[x]/"}` + "\n"},
		{"keys sorted", "/shop/premises", `{"addresses":[{"street":"Main","zip":"1","house-number":"2"}]}`,
			`-1 /shop/premises/addresses[@house-number='2' and @street='Main'] {"street":"Main","zip":"1","house-number":2}` + "\n"},
		{"keys sorted as conditions", "/shop", `{"twins":[{"key":"a","key1":"b"}]}`,
			`-1 /shop/twins[@key1='b' and @key='a'] {"key":"a","key1":"b"}` + "\n"},
		{"below a list entry", "/shop/books[@title='it''s']", `{"editions":[{"e":false},{"e":true}]}`,
			`-1 /shop/books[@title='it''s']/editions[@e='false'] {"e":false}
-1 /shop/books[@title='it''s']/editions[@e='true'] {"e":true}
`},
		{"empty leaf-list", "", `{"shop":{"tag":[]}}`, `-1 /shop {"tag":[]}` + "\n"},
		{"scalar as leaf-list", "", `{"shop":{"tag":7}}`, `-1 /shop {"tag":["7"]}` + "\n"},
		{"choice", "/", `{"shop":{"stamp":"s","box":"b"}}`, `-1 /shop {"stamp":"s","box":"b"}` + "\n"},
		{"container in a case", "/shop", `{"van":{}}`, "-1 /shop/van {}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			nodes, err := m.Nodes(c.parent, []byte(c.doc))
			require.NoError(t, err)
			require.Equal(t, c.want, show(nodes))
		})
	}
}

func TestNodesRefuses(t *testing.T) {
	t.Parallel()
	m := mustLoad(t, module(shop))
	for _, c := range []struct{ name, parent, doc, want string }{
		{"no json", "", `{"shop":`, "ends too early"},
		{"empty", "", ``, "ends too early"},
		{"array", "", `[]`, "want a JSON object"},
		{"trailing", "", `{"shop":{}} {}`, "something follows"},
		{"bad utf-8", "", "{\"shop\":{\"name\":\"\xff\"}}", "is no valid JSON"},
		{"lone surrogate", "", `{"shop":{"name":"\ud800"}}`, "is no valid JSON"},
		{"U+0000", "", `{"shop":{"name":"\u0000"}}`, `document at "/shop/name", byte 24: is no valid UTF-8 text without U+0000`},
		{"lenient JSON", "", `{'shop':{}}`, "is no valid JSON"},
		{"nothing", "", `{}`, "holds no data node"},
		{"empty list", "/shop", `{"books":[]}`, "holds no data node"},
		{"unknown", "", `{"shop":{"nope":1}}`, `document at "/shop/nope", byte 15: is not in the model`},
		{"action", "", `{"shop":{"open":{}}}`, "is not in the model"},
		{"known module, wrong node", "", `{"shop":{"m:nope":1}}`, "is not in the model"},
		{"twice", "", `{"shop":{"name":"a","name":"b"}}`, `document at "/shop/name", byte 26: stands twice`},
		{"twice in two spellings", "", `{"shop":{"name":"a","m:name":"b"}}`, "stands twice"},
		{"lone leaf", "/shop", `{"name":"a"}`, "a leaf needs a container"},
		{"null", "", `{"shop":{"name":null}}`, "is null"},
		{"object for leaf", "", `{"shop":{"name":{}}}`, "is a leaf: want"},
		{"array for leaf", "", `{"shop":{"name":["a"]}}`, "is a leaf: want"},
		{"nested leaf-list", "", `{"shop":{"tag":[["a"]]}}`, "is a leaf: want"},
		{"null as leaf-list", "", `{"shop":{"tag":null}}`, "is null"},
		{"cut in a leaf-list", "", `{"shop":{"tag":["a"`, "ends too early"},
		{"cut in a leaf", "", `{"shop":{"name":"a`, "ends too early"},
		{"cut in a list", "/shop", `{"books":[{"title":"a"}`, "ends too early"},
		{"cut in a name", "/shop", `{"bo`, "ends too early"},
		{"value for empty", "", `{"shop":{"gone":[1]}}`, "want [null]"},
		{"scalar for container", "", `{"shop":1}`, "is a container: want an object"},
		{"full array for container", "", `{"shop":[1]}`, "is a container: want an object"},
		{"scalar for list", "/shop", `{"books":1}`, "is a list: want"},
		{"scalar entry", "/shop", `{"books":[{"title":"a"},1]}`, `document at "/books/0", byte 23: is a list: want`},
		{"no key", "/shop", `{"books":[{"price":1}]}`, "list entry without its key title"},
		{"one of two keys", "/shop", `{"twins":[{"key":"1"}]}`, "without its key key1"},
		{"equal keys", "/shop", `{"books":[{"title":"a"},{"title":"a"}]}`, "data node 1: a list entry with these keys"},
		{"impossible key", "/shop", `{"odd":[{"b":"x"}]}`, "cannot be a key"},
		{"wrong type", "/shop", `{"books":[{"title":"a","price":"x"}]}`, "is no decimal number"},
		{"two cases", "", `{"shop":{"box":"b","van":{}}}`, "another case of choice delivery"},
		{"anydata", "", `{"shop":{"any":{}}}`, "cannot be stored"},
		{"keyless list", "", `{"shop":{"keyless":[]}}`, "cannot be stored"},
		{"long xpath", "/shop", `{"books":[{"title":"` + strings.Repeat("x", 2600) + `"}]}`, "xpath of 2622 bytes"},
		// The parent.
		{"relative parent", "shop", `{}`, "want / at byte 0"},
		{"trailing slash", "/shop/", `{}`, `no container or list ""`},
		{"unknown parent", "/nope", `{}`, `no container or list "nope"`},
		{"leaf parent", "/shop/name", `{}`, `no container or list "name"`},
		{"prefixed parent", "/m:shop", `{}`, `no container or list "m:shop"`},
		{"list parent without keys", "/shop/books", `{}`, "the list entry's keys are missing"},
		{"wrong key", "/shop/books[@name='a']", `{}`, "keys are [title], not [name]"},
		{"missing key", "/shop/twins[@key='a']", `{}`, "keys are [key key1]"},
		{"unsorted keys", "/shop/twins[@key='a' and @key1='b']", `{}`, "not sorted"},
		{"double quotes", `/shop/books[@title="a"]`, `{}`, "want @key='value'"},
		{"open apostrophe", `/shop/books[@title='a''`, `{}`, "unclosed apostrophe"},
		{"open bracket", `/shop/books[@title='a'`, `{}`, "want ] or and"},
		{"something behind", `/shop/books[@title='a']x`, `{}`, "want / at byte 23"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := m.Nodes(c.parent, []byte(c.doc))
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestNodesOfSeveralModules(t *testing.T) {
	t.Parallel()
	m := mustLoad(t, map[string][]byte{
		"a.yang": []byte("module a { namespace urn:a; prefix a; container same { leaf l { type string; } } container only; }"),
		"b.yang": []byte("module b { namespace urn:b; prefix b; import a { prefix a; } container same { leaf k { type string; } } augment /a:only { leaf more { type string; } } }"),
	})
	nodes, err := m.Nodes("", []byte(`{"b:same":{"k":"v"},"only":{"b:more":"x"}}`))
	require.NoError(t, err)
	require.Equal(t, "-1 /same {\"k\":\"v\"}\n-1 /only {\"more\":\"x\"}\n", show(nodes))
	for _, doc := range []string{`{"same":{}}`, `{"a:only":{"a:more":"x"}}`, `{"b:only":{}}`} {
		_, err := m.Nodes("", []byte(doc))
		require.ErrorContains(t, err, "is not in the model", doc)
	}
}

func TestNodesOfTheInventory(t *testing.T) {
	t.Parallel()
	m, err := schemas.InventoryModel()
	require.NoError(t, err)
	nodes, err := m.Nodes("/dmi-registry", []byte(`{"cm-handles":[{"id":"lab-17","alternate-id":"","public-properties":[{"name":"it's","value":7}],
		"state":{"cm-handle-state":"READY","data-sync-enabled":"false","datastores":{"operational":{"sync-state":"NONE_REQUESTED"}}}}]}`))
	require.NoError(t, err)
	require.Equal(t, `-1 /dmi-registry/cm-handles[@id='lab-17'] {"id":"lab-17","alternate-id":""}
0 /dmi-registry/cm-handles[@id='lab-17']/public-properties[@name='it''s'] {"name":"it's","value":"7"}
0 /dmi-registry/cm-handles[@id='lab-17']/state {"cm-handle-state":"READY","data-sync-enabled":false}
2 /dmi-registry/cm-handles[@id='lab-17']/state/datastores {}
3 /dmi-registry/cm-handles[@id='lab-17']/state/datastores/operational {"sync-state":"NONE_REQUESTED"}
`, show(nodes))
}

// devices is a document of n devices of 28 degrees.
func devices(n int) []byte {
	var b strings.Builder
	b.WriteString(`{"openroadm-device":[`)
	for d := range n {
		if d > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"device-id":"C201-7-1A-%d","ne-state":"inservice","commission-date-time":"2022-11-06T14:12:23.260487-06:00","status":"success","org-openroadm-device":{"degree":[`, d+1)
		for g := 1; g <= 28; g++ {
			if g > 1 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"degree-number":%d,"max-wavelengths":128,"circuit-packs":[{"index":1}],"connection-ports":[{"index":1}]}`, g)
		}
		b.WriteString(`]}}`)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func benchModel(t testing.TB) *schemas.Model {
	m, err := schemas.BenchDevice().Load()
	require.NoError(t, err)
	return m
}

func TestBenchDeviceIs86DataNodes(t *testing.T) {
	t.Parallel()
	nodes, err := benchModel(t).Nodes("/openroadm-devices", devices(2))
	require.NoError(t, err)
	require.Len(t, nodes, 2*86)
	last := nodes[len(nodes)-1]
	require.Equal(t, "/openroadm-devices/openroadm-device[@device-id='C201-7-1A-2']/org-openroadm-device/degree[@degree-number='28']/connection-ports[@index='1']", last.XPath)
	require.JSONEq(t, `{"index":1}`, string(last.Leaves))
}

// check holds for any nodes that Nodes returns.
func check(t *testing.T, parent string, nodes []schemas.DataNode) {
	t.Helper()
	seen := map[string]bool{}
	for i, n := range nodes {
		above := parent
		if n.Parent >= 0 {
			require.Less(t, n.Parent, i)
			above = nodes[n.Parent].XPath
		}
		require.True(t, strings.HasPrefix(n.XPath, above+"/"))
		require.LessOrEqual(t, len(n.XPath), schemas.MaxXPath)
		require.False(t, seen[n.XPath])
		seen[n.XPath] = true
		var leaves map[string]any
		require.NoError(t, json.Unmarshal(n.Leaves, &leaves))
		require.NotNil(t, leaves)
		require.NotContains(t, string(n.Leaves), `\u0000`)
	}
}

func FuzzNodes(f *testing.F) {
	models := []*schemas.Model{mustLoad(f, module(shop)), mustLoad(f, module(zoo)), benchModel(f)}
	f.Add("", `{"shop":{"tag":["b","a"],"books":[{"price":7,"editions":[{"e":true}],"title":"I'm"}],"gone":[null]}}`)
	f.Add("/shop/twins[@key1='b' and @key='a']", `{"x":{}}`)
	f.Add("/", `{"zoo":{"bits":"a c","ident":"m:cat","union":"12345","ints":[3,"2"],"bin":"AQID","dec":1.5,"cage":[{"k":"\"'"}]}}`)
	f.Add("/openroadm-devices", string(devices(1)))
	f.Add("", `{"shop":{"twins":[{"key":"a","key1":"b","key":`)
	f.Fuzz(func(t *testing.T, parent, doc string) {
		for _, m := range models {
			nodes, err := m.Nodes(parent, []byte(doc))
			if err != nil {
				require.Empty(t, nodes)
				continue
			}
			if parent == "/" {
				parent = ""
			}
			check(t, parent, nodes)
		}
	})
}

func BenchmarkNodes(b *testing.B) {
	m := benchModel(b)
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			doc := devices(n)
			b.ReportAllocs()
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				if _, err := m.Nodes("/openroadm-devices", doc); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n*86*b.N)/b.Elapsed().Seconds(), "nodes/s")
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := schemas.Inventory().Load(); err != nil {
			b.Fatal(err)
		}
	}
}
