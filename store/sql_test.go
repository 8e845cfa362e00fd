package store_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"ncmp-inventory/store"
	"ncmp-inventory/store/storetest"
)

var statement = regexp.MustCompile(`(?i)^\s*(select|insert|update|delete|with|analyze|begin)\s`)

// TestEveryStatementFitsTheSchema prepares each SQL constant of the package.
func TestEveryStatementFitsTheSchema(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	conn, err := pgx.Connect(t.Context(), db.URL)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	n := 0
	for name, sql := range constants(t) {
		if statement.MatchString(sql) && !strings.Contains(sql, ";") {
			_, err := conn.Prepare(t.Context(), name, sql)
			require.NoError(t, err, name)
			n++
		}
	}
	require.Greater(t, n, 20)
}

// constants are the package's string constants, put together from their parts.
func constants(t *testing.T) map[string]string {
	t.Helper()
	exprs := map[string]ast.Expr{}
	fset := token.NewFileSet()
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path != "." {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.ValueSpec); ok {
				for i, name := range s.Names {
					if i < len(s.Values) {
						exprs[name.Name] = s.Values[i]
					}
				}
			}
			return true
		})
		return nil
	}))
	var value func(e ast.Expr) string
	value = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			s, _ := strconv.Unquote(e.Value)
			return s
		case *ast.BinaryExpr:
			return value(e.X) + value(e.Y)
		case *ast.Ident:
			if exprs[e.Name] != nil {
				return value(exprs[e.Name])
			}
		}
		return ""
	}
	all := map[string]string{}
	for name, e := range exprs {
		all[name] = value(e)
	}
	return all
}

// TestHotStatementsNeverReadTheWholeTable explains them on 50,000 rows, with
// the plans for the arrays at hand and with those that the server keeps.
func TestHotStatementsNeverReadTheWholeTable(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{"fresh", "cps"} {
		t.Run(layout, func(t *testing.T) {
			t.Parallel()
			db := storetest.OpenEmpty(t)
			if layout == "cps" {
				run(t, db, "cps.sql")
			}
			open(t, db.URL)
			fill(t, db, 6250)
			conn, err := pgx.Connect(t.Context(), db.URL)
			require.NoError(t, err)
			defer conn.Close(t.Context())
			for _, size := range []int{1, 100, 2000} {
				for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
					_, err := conn.Exec(t.Context(), `set plan_cache_mode = `+mode)
					require.NoError(t, err)
					for name, s := range store.Statements {
						ids := fmt.Sprintf("(select array_agg(id) from (select id from fragment where xpath like '%%/state' limit %d) x)", size)
						handles := "(select min(id) from anchor), (select array_agg('/dmi-registry/cm-handles[@id=''h' || n || ''']') from generate_series(1, " + strconv.Itoa(size) + ") n)"
						args := map[string]string{
							"bigint, text[]":            handles,
							"bigint, text[], boolean[]": handles + fmt.Sprintf(", (select array_agg(true) from generate_series(1, %d))", size),
							"bigint, text[], jsonb[]":   handles + fmt.Sprintf(", (select array_agg('{}'::jsonb) from generate_series(1, %d))", size),
							"bigint[]":                  ids,
							"bigint[], jsonb[], boolean[]": ids + fmt.Sprintf(
								", (select array_agg('{}'::jsonb) from generate_series(1, %d)), (select array_agg(true) from generate_series(1, %d))", size, size),
						}[s.Types]
						// EXECUTE takes no sub-queries: have the server write the values out.
						var literal string
						require.NoError(t, conn.QueryRow(t.Context(), literalsOf(s.Types, args)).Scan(&literal))
						plan := explain(t, conn, s.SQL, s.Types, literal)
						require.NotContains(t, plan, "Seq Scan on fragment", "%s of %d, %s", name, size, mode)
						if name == "leaves" {
							// No other join goes through the rows in the order of the array.
							require.NotRegexp(t, "Hash|Merge|Sort", plan, "%d, %s", size, mode)
						}
					}
				}
			}
		})
	}
}

func TestRemovalOfHandlesWithoutSyncedDataReadsNoDataNodes(t *testing.T) {
	t.Parallel()
	db := storetest.OpenEmpty(t)
	run(t, db, "cps.sql")
	open(t, db.URL)
	fill(t, db, 1000)
	execute(t, db, `insert into anchor (name, schema_set_id, dataspace_id)
		select 'h' || n, s.id, d.id from generate_series(1, 1000) n, schema_set s, dataspace d where d.name = 'NFP-Operational'`)
	execute(t, db, `analyze`)
	network := column(t, db, `select id::text from dataspace where name = 'NFP-Operational'`)[0]
	sql := strings.NewReplacer("$1", network, "$2::text[]", "array['h1', 'h2', 'h3']").Replace(store.DeleteSyncedData)
	plan := strings.Join(column(t, db, "explain (analyze, costs off, timing off) "+sql), "\n")
	require.Regexp(t, `Scan (using \S+ )?on fragment( \S+)? \(never executed\)`, plan)
	require.Contains(t, plan, "Index Only Scan using fragment_anchor_id_xpath_key")
}

func literalsOf(types, args string) string {
	n := strings.Count(types, ",") + 1
	parts := make([]string, n)
	names := make([]string, n)
	for i := range parts {
		names[i] = fmt.Sprintf("a%d", i)
		parts[i] = fmt.Sprintf("quote_literal(%s::text)", names[i])
	}
	return "select concat_ws(', ', " + strings.Join(parts, ", ") + ") from (select " + args + ") as v (" + strings.Join(names, ", ") + ")"
}

func explain(t *testing.T, conn *pgx.Conn, sql, types, literal string) string {
	t.Helper()
	_, err := conn.Exec(t.Context(), "prepare p ("+types+") as "+sql)
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), "explain execute p ("+literal+")", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "deallocate p")
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

// fill stores n handles of eight rows by SQL.
func fill(t testing.TB, db *storetest.DB, n int) {
	t.Helper()
	sql, err := os.ReadFile("testdata/fill.sql")
	require.NoError(t, err)
	pool := db.Pool(t)
	_, err = pool.Exec(t.Context(), strings.ReplaceAll(string(sql), ":handles", strconv.Itoa(n)))
	require.NoError(t, err)
}

func settingsOf(t *testing.T, s *store.Store, names ...string) map[string]string {
	t.Helper()
	got := map[string]string{}
	for _, n := range names {
		var v string
		require.NoError(t, store.Pool(s).QueryRow(t.Context(), `select current_setting($1)`, n).Scan(&v))
		got[n] = v
	}
	return got
}
