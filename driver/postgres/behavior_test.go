package pgdriver_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/test/behavior"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
)

func TestBehavior(t *testing.T) {
	s := database(t, pgtest.Shared(t, calm...))
	pool := s.pool(t, func(c *pgxpool.Config) { c.MaxConns = 12 }) // a connection costs more than what they do with it
	t.Run("", func(t *testing.T) {                                 // so that the server outlives the parallel tests
		behavior.Run(t, func(t testing.TB, opts ...holdfast.Option) *holdfast.Client {
			return holdfast.Open(pgdriver.New(pool), opts...)
		})
	})
}
