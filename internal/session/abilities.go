package session

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Abilities are what a driver can do beside what each must. They are looked for once, when the
// session begins; nil for what the driver cannot do.
type Abilities struct {
	Attacher   driver.Attacher
	Batcher    driver.Batcher
	Confirmer  driver.Confirmer
	Downgrader driver.Downgrader
	Explainer  driver.Explainer
	Forcer     driver.Forcer
	Inspector  driver.Inspector
	Lister     driver.Lister
	Notifier   driver.Notifier // nil, too, if its store tells of nothing
	Reporter   driver.Reporter
	Resizer    driver.Resizer
	Router     driver.Router
	Stealer    driver.Stealer
	Stringer   fmt.Stringer

	// Prompter is that of the driver itself: one around another has a Renew of its own.
	Prompter driver.Prompter

	LeastTTL time.Duration // of a lease in the store; 0 if any will do
	Timeout  time.Duration // of the driver itself, see driver.Bounded; 0 if there is none, or it is not known
}

func abilitiesOf(d driver.Driver) Abilities {
	a := Abilities{
		Attacher:   as[driver.Attacher](d),
		Batcher:    as[driver.Batcher](d),
		Confirmer:  as[driver.Confirmer](d),
		Downgrader: as[driver.Downgrader](d),
		Explainer:  as[driver.Explainer](d),
		Forcer:     as[driver.Forcer](d),
		Inspector:  as[driver.Inspector](d),
		Lister:     as[driver.Lister](d),
		Notifier:   as[driver.Notifier](d),
		Reporter:   as[driver.Reporter](d),
		Resizer:    as[driver.Resizer](d),
		Router:     as[driver.Router](d),
		Stealer:    as[driver.Stealer](d),
		Stringer:   as[fmt.Stringer](d),
	}
	a.Prompter, _ = d.(driver.Prompter)
	if a.Notifier != nil && !a.Notifier.Notices() {
		a.Notifier = nil
	}
	if coarse := as[driver.Granular](d); coarse != nil {
		a.LeastTTL, _ = coarse.Granularity()
	}
	if bounded, ok := d.(driver.Bounded); ok {
		a.Timeout = bounded.Timeout()
	}
	return a
}

// as is driver.As that returns nil if there is none.
func as[T any](d driver.Driver) T {
	t, _ := driver.As[T](d)
	return t
}
