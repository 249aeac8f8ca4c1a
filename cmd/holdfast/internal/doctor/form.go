package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
)

// examineForm tries the rights that locks of this form need, and says what the form lacks.
func examineForm(ctx context.Context, f *store.Form, rdb redis.UniversalClient, prefix string) []finding {
	findings := []finding{{
		Check: "form", Level: warn, Advice: "when all programs can be changed, use the locks of holdfast: see docs/migration.md",
		Text: fmt.Sprintf("%s: no fences, with which alone a late write can be refused; no queue: a waiter %s", f.Text, f.Waits),
	}}
	key := prefix + "holdfast-doctor-" + rand.Text()[:8]
	missing := false
	for _, of := range []struct{ key, pattern string }{{key, prefix + "*"}, {f.Beside + "{" + key + "}", f.Beside + "*"}} {
		if err := rdb.Do(ctx, "eval", "return 1", 1, of.key).Err(); redis.HasErrorPrefix(err, "NOPERM") {
			missing = true
			name := "+eval"
			if strings.Contains(err.Error(), " key") {
				name = "~" + of.pattern
			}
			findings = append(findings, finding{Check: "rights", Level: fail, Text: name + " is missing: locks do not work", Advice: "ACL SETUSER NAME " + name})
		}
	}
	more := []right{
		{"+get", []any{"get", key}, false},
		{"+pexpire", []any{"pexpire", key, 10_000}, false},
		{"+hexists", []any{"hexists", key, "f"}, false},
		{"+hlen", []any{"hlen", key}, false},
		{"+hkeys", []any{"hkeys", key}, false},
		{"+zadd", []any{"zadd", key, 0, "m"}, false},
		{"+zrange", []any{"zrange", key, 0, -1}, false},
		{"+zscore", []any{"zscore", key, "m"}, false},
		{"+zremrangebyscore", []any{"zremrangebyscore", key, 0, 0}, false},
	}
	for _, r := range append(more, rights(key, key)...) { // the last but the messages removes the key
		if !slices.Contains(f.Rights, strings.TrimPrefix(r.name, "+")) {
			continue
		}
		if err := rdb.Do(ctx, r.args...).Err(); redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), " command") {
			missing = true
			findings = append(findings, finding{Check: "rights", Level: fail, Text: r.name + " is missing: locks do not work", Advice: "ACL SETUSER NAME " + r.name})
		}
	}
	if err := rdb.Do(ctx, "scan", 0, "count", 1).Err(); redis.HasErrorPrefix(err, "NOPERM") {
		findings = append(findings, finding{Check: "rights", Level: warn, Text: "+scan is missing: only holdfast ls needs it", Advice: "ACL SETUSER NAME +scan"})
	}
	if !missing {
		findings = append(findings, finding{Check: "rights", Level: fine, Text: fmt.Sprintf("all %d that locks need, on keys %s* and %s*", len(f.Rights), prefix, f.Beside)})
	}
	return findings
}
