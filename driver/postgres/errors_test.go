package pgdriver

import (
	"crypto/x509"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast/driver"
)

// Only what a server is known to say again is a refusal. Poolers and other servers have codes of their own.
func TestOnlyWhatIsKnownToLastIsARefusal(t *testing.T) {
	for code, passes := range map[string]bool{
		"08P01": true, // a pooler has lost its server
		"0A000": true, // a plan that was prepared before a migration
		"25006": true, // a standby
		"25P03": true, // idle in a transaction for too long
		"53300": true, // too many connections
		"55000": true, // of the driver no call says it
		"55006": true, // the database is in use
		"55P03": true, // lock_timeout
		"57P03": true, // it starts
		"58000": true, // a system error
		"72000": true, // of no class that is known here
		"XX000": true, // an internal error
		"XX001": true, // a page that is corrupt, perhaps on this node only
		"22023": false,
		"28P01": false,
		"3D000": false,
		"3F000": false,
		"42501": false,
		"42883": false,
		"P0001": false,
	} {
		err := error(classify(&pgconn.PgError{Code: code}))
		assert.Equal(t, passes, errors.Is(err, driver.ErrTransient), "FOUL: %s", code)
		assert.Equal(t, code == "28P01" || code == "42501", errors.Is(err, driver.ErrDenied), code)
		assert.Equal(t, !passes, (&listener{}).Refused(err) || code == "28P01", "news: %s", code)
	}
	for _, err := range []error{x509.UnknownAuthorityError{}, errors.New("503 from the service of tokens")} {
		assert.ErrorIs(t, unsent(err), driver.ErrTransient)
		assert.ErrorIs(t, unsent(err), driver.ErrNotExecuted)
		assert.ErrorIs(t, classify(err), driver.ErrTransient)
	}
}
