package check

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/chart/common/util"
)

// value is one line of the README's table.
type value struct{ name, def, doc string }

// documented walks the comments of values.yaml. A mapping is a section if its
// children have comments, else it is a value.
func documented(t *testing.T, prefix string, n *yaml.Node, into *[]value) {
	t.Helper()
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		name := strings.TrimPrefix(prefix+"."+k.Value, ".")
		doc := strings.ReplaceAll(strings.ReplaceAll(k.HeadComment, "\n# ", " "), "# ", "")
		if v.Kind == yaml.MappingNode && v.Style&yaml.FlowStyle == 0 && len(v.Content) > 0 && (v.Content[0].HeadComment != "" || k.HeadComment == "") {
			if doc != "" {
				*into = append(*into, value{name, "", doc})
			}
			documented(t, name, v, into)
			continue
		}
		require.NotEmpty(t, doc, "%s has no comment", name)
		var def any
		require.NoError(t, v.Decode(&def))
		*into = append(*into, value{name, "`" + toJSON(def) + "`", doc})
	}
}

const readmeHead = `# ncmp-inventory

A Helm chart for the worker. It needs Kafka, PostgreSQL and a Secret that holds the
database's URL; it brings none of them.

` + "```console" + `
$ kubectl create secret generic ncmp-database --from-literal=url='postgres://ncmp:…@postgres/ncmp'
$ helm install ncmp deploy/helm/ncmp-inventory \
    --set 'config.kafka.brokers={kafka:9092}' --set secrets.database.name=ncmp-database
` + "```" + `

Secrets are only referred to; they are mounted as files and read again when they
change. A changed configuration rolls the workers over.

| value | default | what |
|---|---|---|
`

// The README is made of the comments in values.yaml.
func TestReadmeListsEveryValue(t *testing.T) {
	var doc yaml.Node
	require.NoError(t, yaml.Unmarshal(read(t, "deploy/helm/ncmp-inventory/values.yaml"), &doc))
	top := doc.Content[0]
	// The file's own comment stands before the first value's.
	if i := strings.LastIndex(top.Content[0].HeadComment, "\n\n"); i >= 0 {
		top.Content[0].HeadComment = top.Content[0].HeadComment[i+2:]
	}
	var values []value
	documented(t, "", top, &values)
	var b strings.Builder
	b.WriteString(readmeHead)
	for _, v := range values {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.name, v.def, strings.ReplaceAll(v.doc, "|", `\|`))
	}
	same(t, "deploy/helm/ncmp-inventory/README.md", b.String())
}

// The schema knows every value there is, and no other.
func TestSchemaKnowsEveryValue(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	values, err := util.CoalesceValues(c, nil)
	require.NoError(t, err)
	require.NoError(t, util.ValidateAgainstSingleSchema(values, c.Schema))
	var schema map[string]any
	require.NoError(t, json.Unmarshal(c.Schema, &schema))
	compareSchema(t, "", schema, values)
}

func compareSchema(t *testing.T, prefix string, schema, values map[string]any) {
	t.Helper()
	if schema["additionalProperties"] != false {
		return // free below here
	}
	properties := schema["properties"].(map[string]any)
	for name, v := range values {
		require.Contains(t, properties, name, prefix)
		if section, ok := v.(map[string]any); ok {
			compareSchema(t, prefix+"."+name, properties[name].(map[string]any), section)
		}
	}
	for name := range properties {
		if prefix == "" && name == "global" {
			continue // Helm's own
		}
		require.Contains(t, values, name, "values.yaml lacks what the schema allows in %s", prefix)
	}
}
