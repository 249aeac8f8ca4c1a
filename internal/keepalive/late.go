package keepalive

import (
	"math"
	"time"
)

// fades is how long it takes until half of a lateness is forgotten.
const fades = 30 * time.Second

// lateness is how late the timer goroutine was. A process that gets no processor, as under a quota of
// CPU, is late again and again, so its leases are renewed earlier by that much: a renewal that is due at
// TTL/3 and comes 2/3 of a TTL late is none.
type lateness struct {
	worst  time.Duration // at that time; it fades
	at     time.Time
	untold time.Duration // the most since it was last told
}

// note notes when the goroutine looks, and when it was to look at the latest.
func (l *lateness) note(now, planned time.Time) {
	late := now.Sub(planned)
	l.untold = max(l.untold, late)
	if late >= l.lately(now) {
		l.worst, l.at = late, now
	}
}

// lately is the most of late, the less the longer ago.
func (l *lateness) lately(now time.Time) time.Duration {
	return time.Duration(float64(l.worst) * math.Exp2(-float64(now.Sub(l.at))/float64(fades)))
}
