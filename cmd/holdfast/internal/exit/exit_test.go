package exit

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestReportTakesTheCodeOfAWrappedFailure(t *testing.T) {
	assert.Equal(t, 0, Report(nil))
	assert.Equal(t, 9, Report(errors.Join(errors.New("and"), Silent(9))))
}
