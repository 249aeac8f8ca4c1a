package main

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
)

// dashboard is as much of the format of Grafana as there is to check.
type dashboard struct {
	Panels     []panel
	Templating struct {
		List []struct {
			Name, Type, Definition string
			Datasource             datasource
		}
	}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               datasource
	GridPos                  struct{ H, W, X, Y int }
	Targets                  []struct {
		Expr, LegendFormat, RefID string
		Datasource                datasource
	}
}

type datasource struct{ Type, UID string }

func readDashboard(t *testing.T) dashboard {
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	require.NotEmpty(t, d.Panels)
	return d
}

// Every metric and label on the dashboard is there after the shop was open, and every metric
// that is there is on the dashboard.
func TestDashboardShowsTheMetricsThatExist(t *testing.T) {
	series := shopMetrics(t)
	d := readDashboard(t)
	unseen := map[string]bool{}
	for name := range series {
		unseen[instrument(name)] = true
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			q := parse(t, target.Expr)
			q.check(t, p.Title, series)
			for name := range q.labels {
				delete(unseen, instrument(name))
			}
			for _, m := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				assert.Contains(t, q.by, m[1], "%s: the legend has a label that the query drops", p.Title)
			}
		}
	}
	assert.Empty(t, slices.Sorted(maps.Keys(unseen)), "on no panel")
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			m := labelValues.FindStringSubmatch(v.Definition)
			require.NotNil(t, m, v.Definition)
			q := parse(t, m[1])
			q.by = append(q.by, m[2])
			q.check(t, v.Name, series)
		}
	}
}

var (
	legend      = regexp.MustCompile(`{{(\w+)}}`)
	labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	part        = regexp.MustCompile(`_(bucket|count|sum|total)$`)
)

// instrument is the name of a series without what tells the series of one metric apart.
func instrument(series string) string { return part.ReplaceAllString(series, "") }

// query is what an expression of PromQL uses.
type query struct {
	labels map[string][]string // in the braces of each metric
	by     []string            // of aggregations
}

// parse reads an expression as Grafana sends it.
func parse(t *testing.T, expr string) query {
	t.Helper()
	sent := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h").Replace(expr)
	e, err := parser.ParseExpr(sent)
	require.NoError(t, err, expr)
	q := query{labels: map[string][]string{}}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			for _, m := range n.LabelMatchers {
				q.labels[n.Name] = append(q.labels[n.Name], m.Name)
			}
		case *parser.AggregateExpr:
			q.by = append(q.by, n.Grouping...)
		}
		return nil
	})
	return q
}

// check fails the test if the query uses what is not in the series.
func (q query) check(t *testing.T, where string, series map[string][]string) {
	t.Helper()
	require.NotEmpty(t, q.labels, "%s: no metric", where)
	for name, labels := range q.labels {
		if assert.Contains(t, series, name, where) {
			assert.Subset(t, series[name], labels, "%s: labels of %s", where, name)
			assert.Subset(t, series[name], q.by, "%s: labels of %s", where, name)
		}
	}
}

// shopMetrics opens the shop and returns the series of the library, each with its labels.
func shopMetrics(t *testing.T) map[string][]string {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	require.NoError(t, err)
	require.NoError(t, run(t.Context(), "", &account{}, exporter))
	seen := scrapes{}
	seen.scrape(t, registry)
	series := map[string][]string{}
	for _, s := range seen {
		if name := s.labels.Get("__name__"); strings.HasPrefix(name, "holdfast_") {
			s.labels.Range(func(l labels.Label) { series[name] = append(series[name], l.Name) })
		}
	}
	return series
}

func TestPanelsHaveAPlaceAndADatasource(t *testing.T) {
	d := readDashboard(t)
	ours := datasource{"prometheus", "${DS_PROMETHEUS}"}
	ids, places := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		assert.NotZero(t, p.ID, p.Title)
		assert.Empty(t, ids[p.ID], "%s: has the id of another", p.Title)
		ids[p.ID] = p.Title
		at := p.GridPos
		assert.True(t, at.W > 0 && at.H > 0 && at.X >= 0 && at.Y >= 0 && at.X+at.W <= 24, "%s: outside of the grid", p.Title)
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				assert.Empty(t, places[[2]int{x, y}], "%s: lies on another", p.Title)
				places[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			assert.Empty(t, p.Targets, p.Title)
			continue
		}
		assert.NotEmpty(t, p.Description, p.Title)
		assert.Equal(t, ours, p.Datasource, p.Title)
		assert.NotEmpty(t, p.Targets, p.Title)
		refs := map[string]bool{}
		for _, target := range p.Targets {
			assert.Equal(t, ours, target.Datasource, p.Title)
			assert.False(t, refs[target.RefID], "%s: two queries %s", p.Title, target.RefID)
			refs[target.RefID] = true
		}
	}
}

// Variables that queries use are there, those that are there are used, and each comes after
// what it uses itself.
func TestVariablesAreDefinedAndUsed(t *testing.T) {
	d := readDashboard(t)
	variable := regexp.MustCompile(`\$\{?(\w+)`)
	defined, used := map[string]bool{}, map[string]bool{}
	use := func(where string, texts ...string) {
		for _, text := range texts {
			for _, m := range variable.FindAllStringSubmatch(text, -1) {
				used[m[1]] = true
				assert.True(t, defined[m[1]] || m[1] == "__rate_interval" || m[1] == "__range", "%s: $%s is not defined", where, m[1])
			}
		}
	}
	for _, v := range d.Templating.List {
		use(v.Name, v.Definition, v.Datasource.UID)
		defined[v.Name] = true
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			use(p.Title, target.Expr, target.Datasource.UID)
		}
	}
	for name := range defined {
		assert.True(t, used[name], name)
	}
}
