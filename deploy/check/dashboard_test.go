package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/stretchr/testify/require"
)

const boardFile = "deploy/grafana/ncmp-inventory.json"

// source lets a viewer choose which Prometheus is asked.
var source = common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}

func variable(name, label, of string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source).
		Query(dashboard.StringOrMap{String: cog.ToPtr("label_values(ncmp_inventory_build_info" + of + ", " + name + ")")}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(true).IncludeAll(true).AllValue(".*").
		Current(dashboard.VariableOption{Text: dashboard.StringOrArrayOfString{String: cog.ToPtr("All")}, Value: dashboard.StringOrArrayOfString{String: cog.ToPtr("$__all")}})
}

// makeBoard lays the rows of panels_test.go out.
func makeBoard(t *testing.T) string {
	t.Helper()
	const wide, high = 8, 7
	// The older form of dashboards is the one that every Grafana in use takes.
	b := dashboard.NewDashboardBuilder("NCMP inventory").Uid("ncmp-inventory"). //nolint:staticcheck // see above
											Description("The promises of ncmp-inventory, a panel each, and what they rest on.").
											Tags([]string{"ncmp", "kafka", "postgresql"}).
											Time("now-3h", "now").Refresh("30s").Timezone("browser").Tooltip(dashboard.DashboardCursorSyncCrosshair).
											WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")).
											WithVariable(variable("namespace", "Namespace", "")).
											WithVariable(variable("job", "Job", `{namespace=~"$namespace"}`)).
											Annotation(dashboard.NewAnnotationQueryBuilder().Name("Alerts").Datasource(source).Enable(true).IconColor("red").
												Expr(`ALERTS{alertname=~"NcmpInventory.*",alertstate="firing",severity!="info"}`))
	id, y := uint32(0), uint32(0)
	for _, row := range rows {
		id++
		b.WithRow(dashboard.NewRowBuilder(row.title).Id(id).GridPos(dashboard.GridPos{W: 24, H: 1, X: 0, Y: y}))
		y++
		for i, p := range row.panels {
			id++
			column := uint32(i % 3)
			graph := timeseries.NewPanelBuilder().Id(id).Title(p.title).Description(p.doc).Datasource(source).Unit(p.unit).Min(0).
				GridPos(dashboard.GridPos{W: wide, H: high, X: column * wide, Y: y + uint32(i/3)*high}).
				FillOpacity(10).ShowPoints(common.VisibilityModeNever).
				Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
				Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
			for n, q := range p.queries {
				graph.WithTarget(prometheus.NewDataqueryBuilder().Expr(q.expr).LegendFormat(q.legend).RefId(string(rune('A' + n))).Range())
			}
			b.WithPanel(graph)
		}
		y += uint32((len(row.panels)+2)/3) * high
	}
	board, err := b.Build()
	require.NoError(t, err)
	raw, err := json.Marshal(board)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, json.Indent(&out, raw, "", "  "))
	return out.String() + "\n"
}

// It runs before the parallel tests, which read what it may write.
func TestDashboardIsMadeOfThePanels(t *testing.T) {
	same(t, boardFile, makeBoard(t))
}

// Grafana's own types take the file, and nothing in it is unknown to them.
func TestDashboardIsGrafanas(t *testing.T) {
	t.Parallel()
	known := cog.NewRuntime()
	known.RegisterPanelcfgVariant(timeseries.VariantConfig())
	known.RegisterDataqueryVariant(prometheus.VariantConfig())
	raw := read(t, boardFile)
	var board dashboard.Dashboard //nolint:staticcheck // as makeBoard
	require.NoError(t, json.Unmarshal(raw, &board))
	require.NoError(t, board.Validate())
	again, err := json.Marshal(board)
	require.NoError(t, err)
	require.JSONEq(t, string(raw), string(again), "something in it is unknown to Grafana")
	ids := map[uint32]bool{}
	type cell struct{ x, y uint32 }
	taken := map[cell]bool{}
	for _, p := range board.Panels {
		if p.RowPanel != nil {
			require.False(t, ids[p.RowPanel.Id])
			ids[p.RowPanel.Id] = true
			continue
		}
		require.False(t, ids[*p.Panel.Id])
		ids[*p.Panel.Id] = true
		g := p.Panel.GridPos
		require.LessOrEqual(t, g.X+g.W, uint32(24))
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				require.False(t, taken[cell{x, y}], "%s lies over another panel", *p.Panel.Title)
				taken[cell{x, y}] = true
			}
		}
	}
}

var macros = strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$job", ".*")

// What linters of dashboards ask for: every panel says what it shows, in which
// unit, chosen by the variables; and every query fits the program.
func TestPanelsAreComplete(t *testing.T) {
	t.Parallel()
	all, shown, titles := metrics(t), map[string]bool{}, map[string]bool{}
	for _, row := range rows {
		for _, p := range row.panels {
			require.NotEmpty(t, p.doc, p.title)
			require.NotEmpty(t, p.unit, p.title)
			require.False(t, titles[p.title], p.title)
			titles[p.title] = true
			for _, q := range p.queries {
				require.NotEmpty(t, q.legend, p.title)
				used, problems := checkQuery(all, macros.Replace(q.expr))
				require.Empty(t, problems, "%s: %s", p.title, q.expr)
				for _, name := range used {
					shown[strings.TrimSuffix(name, "_bucket")] = true
					require.Regexp(t, name+`\{`+regexp.QuoteMeta(sel), q.expr)
				}
				for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.legend, -1) {
					require.Regexp(t, `by \([^)]*\b`+m[1]+`\b`, q.expr, "%s: the legend shows a label that the query drops", p.title)
				}
				require.NotRegexp(t, `\[\d+[ms]\]`, q.expr, "%s: a fixed window fits one zoom only", p.title)
			}
		}
	}
	// What nobody looks at need not be measured.
	for name, m := range all {
		if strings.HasPrefix(name, "ncmp_inventory_") && !slices.ContainsFunc(hidden, func(s string) bool { return strings.HasPrefix(name, s) }) &&
			!(m.kind == "counter" && regexp.MustCompile(`_(bucket|sum|count)$`).MatchString(name)) {
			require.True(t, shown[name], "no panel shows %s", name)
		}
	}
}

// hidden are metrics for a closer look only.
var hidden = []string{
	"ncmp_inventory_position", "ncmp_inventory_publisher_epochs_total", "ncmp_inventory_store_fragment_ids_total",
}

// Each promise has a panel, and what an alert looks at can be seen.
func TestAlertsCanBeSeen(t *testing.T) {
	t.Parallel()
	text, all := fmt.Sprint(rows), metrics(t)
	for n := range 8 {
		require.Regexp(t, fmt.Sprintf(`\bG%d\. `, n+1), text)
	}
	for _, r := range alerts(t) {
		used, _ := checkQuery(all, r.Expr)
		for _, name := range used {
			require.Contains(t, text, name, "%s looks at what no panel shows", r.Alert)
		}
	}
}
