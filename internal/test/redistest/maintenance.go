package redistest

import (
	"fmt"
	"strings"
)

// Maintain has the proxy be the front of a managed Redis, which tells its clients of
// maintenance: from now on it accepts CLIENT MAINT_NOTIFICATIONS. Redis and Valkey do not
// know that command.
func (p *Proxy) Maintain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.maintains = true
}

// Moving tells the clients that asked for such news that they have to be at another proxy
// within so many seconds, and returns how many connections were told.
func (p *Proxy) Moving(to *Proxy, seconds int) (told int) {
	const push = ">4\r\n$6\r\nMOVING\r\n:1\r\n:%d\r\n$%d\r\n%s\r\n"
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.maintained {
			// Between two replies, as deliver writes each of them whole.
			_, _ = fmt.Fprintf(l.ends[toClient], push, seconds, len(to.addr), to.addr)
			told++
		}
	}
	return told
}

// subscribesToMaintenance reports whether a request is one that the proxy answers for the
// server.
func (l *link) subscribesToMaintenance(f *frame) bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if !l.proxy.maintains || f.word(0) != "client" || f.word(1) != "maint_notifications" {
		return false
	}
	l.maintained = strings.EqualFold(f.words[2], "on")
	return true
}
