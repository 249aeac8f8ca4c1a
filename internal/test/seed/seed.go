// Package seed says what tests begin with that try things at random. A gate tries the same each time,
// so that what turns it red is the change that it is about.
package seed

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
)

// Of is HOLDFAST_SEED if that is set, else another in each process where HOLDFAST_SOAK=1, else 1.
var Of = sync.OnceValue(func() uint64 {
	if text := os.Getenv("HOLDFAST_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n == 0 {
			panic(fmt.Sprintf("HOLDFAST_SEED=%s: want a number from 1 on", text))
		}
		return n
	}
	if os.Getenv("HOLDFAST_SOAK") == "1" {
		return rand.Uint64N(1<<62) + 1
	}
	return 1
})

// Rapid has rapid begin with it, unless RAPID_SEED or -rapid.seed says something else. It is to be
// called by an init of a test. A test that fails says with which seed.
func Rapid() {
	if _, given := os.LookupEnv("RAPID_SEED"); !given {
		_ = flag.Set("rapid.seed", fmt.Sprint(Of())) // cannot fail where rapid is
	}
}
