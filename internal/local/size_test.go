package local

import (
	"github.com/holdfast-go/holdfast/internal/claim"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"testing"
	"unsafe"
)

func TestSizes(t *testing.T) {
	t.Log("Lock", unsafe.Sizeof(Lock{}), "Grant", unsafe.Sizeof(Grant{}), "Claim", unsafe.Sizeof(claim.Claim{}), "Hold", unsafe.Sizeof(Hold{}), "turn", unsafe.Sizeof(turn{}), "entry", unsafe.Sizeof(keepalive.Entry{}), "ID", unsafe.Sizeof(ID{}))
}
