package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The story lasts two seconds, so its readers have little patience: on a busy machine the store
// answers one of them too late. An account that leaves something out does so in each of five runs.
func TestAccountTellsWhoWaitedForWhomAndOfTheLoss(t *testing.T) {
	var text string
	var missing []string
	for try := 0; try == 0 || len(missing) > 0; try++ {
		require.Less(t, try, 5, "%s\nnot told: %s", text, strings.Join(missing, ", "))
		var out bytes.Buffer
		require.NoError(t, runAccount(t.Context(), "", &out))
		text, missing = out.String(), nil
		hold := regexp.MustCompile(`(?m)^batch  nightly report .*\n(?:[├│└].*\n)*?├─ hold mutex report:daily  (\w{4}) .* released`).FindStringSubmatch(text)
		require.NotNil(t, hold, "the nightly report holds its lock")
		for what, want := range map[string]string{
			"who waits is linked to who holds":  `web-1  nightly report .*\n.* acquire mutex report:daily .* acquired, contended .*\n.* waited for → hold ` + hold[1] + ` of batch\n`,
			"who times out, too":                `web-2  GET /report .* ✗\n.* ✗ timeout, contended .*\n.* waited for → hold ` + hold[1] + ` of batch\n`,
			"and who tries":                     `web-2  nightly report .*\n.* not_acquired, contended .*\n.* waited for → hold ` + hold[1] + ` of batch\n`,
			"the loss is in the traces":         `hold mutex import:acme  \w{4} .* ✗ lost`,
			"and in the metrics":                `mutex exclusive import .* 1\n`,
			"there are quantiles":               `semaphore shared payments( +\d+){4}( +[\d.]+ ms){4} +0\n`,
			"the subscription was made again":   `reconnects  error \d`,
			"who holds and waits is seen live":  ` s   hold [1-9] ■+ +wait [1-9] □+\n`,
			"scripts are called by their names": `mutex\.acquire`,
		} {
			if !regexp.MustCompile(want).MatchString(text) {
				missing = append(missing, what)
			}
		}
	}
}

func TestJSONIsThatOfTheStandardExporters(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, runJSON(t.Context(), "", &out))
	assert.Contains(t, out.String(), `"holdfast.mutex.acquire"`)
	assert.NotContains(t, out.String(), "evalsha", "whose arguments have tokens")
	spans, metrics := map[string]int{}, 0
	for d := json.NewDecoder(&out); ; {
		var o struct {
			Name         string
			ScopeMetrics []any
		}
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		spans[o.Name]++
		metrics += len(o.ScopeMetrics)
	}
	assert.Equal(t, 1, spans["hold mutex"]-spans["release mutex"]+1)
	assert.NotZero(t, spans["holdfast.rwmutex.acquire"])
	assert.NotZero(t, metrics)
}
