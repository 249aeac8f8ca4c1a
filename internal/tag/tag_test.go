package tag_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/tag"
)

func TestTagAndNotesAreReadAsTheyWereWritten(t *testing.T) {
	for _, own := range []string{"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {
		for _, notes := range [][]string{nil, {"a"}, {"a", "b"}} {
			said := tag.With(own, notes...)
			assert.NotEmpty(t, said, "an empty one stands for the one before")
			assert.Equal(t, own, tag.Own(said))
			assert.Equal(t, notes, tag.Notes(said))
		}
		assert.Equal(t, own, tag.Own(own), "without any notes")
		assert.Empty(t, tag.Notes(own))
	}
}

func TestNotesForWhichThereIsNoRoomAreLeftOut(t *testing.T) {
	long := strings.Repeat("x", driver.MaxHolderTag/2)
	said := tag.With("t", long, long, "y")
	assert.LessOrEqual(t, len(said), driver.MaxHolderTag)
	assert.ElementsMatch(t, []string{long, "y"}, tag.Notes(said))
}
