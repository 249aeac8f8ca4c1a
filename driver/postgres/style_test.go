package pgdriver_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// Without prepared statements, as behind a pooler of transactions, all that the server answers is text; with
// them it is not.
func TestHowASessionWritesTimesIntervalsAndBytesDoesNotMatter(t *testing.T) {
	s := begin(t)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheStatement} {
		s.Pool = s.pool(t, func(c *pgxpool.Config) {
			c.MaxConns = 1
			c.ConnConfig.DefaultQueryExecMode = mode
			c.ConnConfig.RuntimeParams["DateStyle"] = "SQL, DMY"
			c.ConnConfig.RuntimeParams["bytea_output"] = "escape"
		})
		a := s.asker(t)
		for _, style := range []string{"postgres", "postgres_verbose", "sql_standard", "iso_8601"} {
			t.Run(style+" "+mode.String(), func(t *testing.T) {
				_, err := s.Exec(t.Context(), `SET IntervalStyle = `+style) // of the one session
				require.NoError(t, err)
				token := t.Name()
				r := request(token, driver.MaxTTL)
				r.Owner, r.Holder = "o\xff", "the holder"
				fence := a.granted(r)
				_, err = s.Exec(t.Context(), `UPDATE holdfast.claim SET since = since - interval '100 hours'`)
				require.NoError(t, err)
				g := a.busy(request("other", long))
				require.Equal(t, "the holder", g.Holder)
				require.InDelta(t, 100*time.Hour, g.HeldFor, float64(patience))
				require.InDelta(t, r.TTL, g.RetryAfter, float64(patience))
				info, err := a.Inspect(t.Context(), driver.Mutex, "l")
				require.NoError(t, err)
				require.Equal(t, r.Owner, info.Holders[0].Owner)
				require.WithinDuration(t, time.Now().Add(-100*time.Hour), info.Holders[0].Since, patience)
				require.InDelta(t, r.TTL, info.Holders[0].TimeLeft, float64(patience))
				require.NoError(t, a.List(t.Context(), "", func(_ driver.Kind, name string) error {
					require.Equal(t, "l", name)
					return nil
				}))
				g, err = a.Attach(t.Context(), lease(token, long), request(token+"_heir", long))
				require.NoError(t, err)
				require.Equal(t, r.Owner, g.Owner)
				require.Greater(t, g.Fence, fence)
				a.release(token + "_heir")
			})
		}
	}
}
