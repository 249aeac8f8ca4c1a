package main

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// query is what an expression of PromQL uses.
type query struct {
	labels map[string][]string // in the braces of each metric
	by     []string            // of aggregations
}

// parse knows as much of PromQL as the dashboard needs; anything else is an error. The
// parser of Prometheus brings with it several times the modules of this library.
var (
	token     = regexp.MustCompile(`^(?:"(?:[^"\\]|\\.)*"|\[[^\]]*\]|\$?[a-zA-Z_]\w*|[0-9.]+|=~|!~|!=|[={},()/])`)
	name      = regexp.MustCompile(`^[a-zA-Z_]`)
	functions = map[string]bool{"sum": true, "rate": true, "increase": true, "last_over_time": true, "histogram_quantile": true}
	operators = map[string]bool{"or": true, "unless": true, "offset": true}
)

func parse(expr string) (query, error) {
	q := query{labels: map[string][]string{}}
	tokens, err := tokenize(expr)
	for i := 0; i < len(tokens) && err == nil; i++ {
		switch t := tokens[i]; {
		case t == "by":
			q.by, i, err = list(q.by, tokens, i+1, "(", ")")
		case !name.MatchString(t), functions[t], operators[t]:
		case tokens[min(i+1, len(tokens)-1)] == "(":
			err = fmt.Errorf("unknown function %s", t)
		case tokens[min(i+1, len(tokens)-1)] == "{":
			q.labels[t], i, err = list(q.labels[t], tokens, i+1, "{", "}")
		default:
			q.labels[t] = append(q.labels[t], nil...)
		}
	}
	return q, err
}

// tokenize splits an expression, and sees to its brackets.
func tokenize(expr string) (tokens []string, err error) {
	closes := map[string]string{"(": ")", "{": "}"}
	var open []string
	for i := 0; i < len(expr); {
		if expr[i] == ' ' {
			i++
			continue
		}
		t := token.FindString(expr[i:])
		switch {
		case t == "":
			return nil, fmt.Errorf("what is %q?", expr[i:])
		case closes[t] != "":
			open = append(open, closes[t])
		case t == ")" || t == "}":
			if len(open) == 0 || open[len(open)-1] != t {
				return nil, fmt.Errorf("misplaced %s before %q", t, expr[i:])
			}
			open = open[:len(open)-1]
		}
		tokens = append(tokens, t)
		i += len(t)
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("%s is missing", open)
	}
	return tokens, nil
}

// list adds the names between brackets, of which the first is tokens[i], and returns where
// the last is.
func list(names, tokens []string, i int, first, last string) ([]string, int, error) {
	if i >= len(tokens) || tokens[i] != first {
		return nil, i, fmt.Errorf("%s is missing", first)
	}
	for i++; tokens[i] != last; i++ {
		if name.MatchString(tokens[i]) {
			names = append(names, tokens[i])
		}
	}
	return names, i, nil
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

func TestParseFindsMetricsAndLabels(t *testing.T) {
	q, err := parse(`histogram_quantile(0.99, sum by (a, le) (rate(x_bucket{b=~"$v", c!="by (}"}[$__rate_interval]))) / (y or y offset $__range)`)
	require.NoError(t, err)
	assert.Equal(t, map[string][]string{"x_bucket": {"b", "c"}, "y": nil}, q.labels)
	assert.Equal(t, []string{"a", "le"}, q.by)
	for _, wrong := range []string{`sum(x`, `sum(x{a="b")}`, `avg(x)`, `x > 1`, `sum by a (x)`, `x{a="b}`, `x))`} {
		_, err := parse(wrong)
		assert.Error(t, err, wrong)
	}
}
