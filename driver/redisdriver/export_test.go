package redisdriver

import "github.com/holdfast-go/holdfast/driver"

// Watches returns how many tokens the driver keeps in mind.
func (d *Driver) Watches() int {
	n, _ := d.news.Known()
	return n
}

// Key returns the key of a lock.
func (d *Driver) Key(k driver.Kind, name string) string { return d.lock(k, name).key.(string) }

// IdleConns is how many idle connections a number of go-redis stands for.
func IdleConns(told uint32) int { return idle(told) }

// Channel returns what the wake channel of the driver's client is called.
func (d *Driver) Channel() string { return d.channel.prefix + d.channel.id }

// Script is what can be done to locks.
type Script struct {
	Verb      string
	Text      string
	Parts     []string // the files that it is made of
	Arguments int      // for each of many locks
	OnCluster string   // the text there
	OnNode    string   // for many locks of a node there
	Statuses  map[string]int
}

// Scripts returns all scripts, with the names that Go has for what they answer.
func Scripts() []Script {
	statuses := map[string]map[string]int{
		"acquire": {"BURIED": acquireBuried, "BUSY": acquireBusy, "QUEUED": acquireQueued, "GRANTED": acquireGranted,
			"EXCEEDED": acquireExceeded, "CONFLICT": acquireConflict, "FULL": acquireFull},
		"attach":    {"BURIED": acquireBuried, "GRANTED": acquireGranted},
		"steal":     {"BURIED": acquireBuried, "GRANTED": acquireGranted},
		"release":   {"NEITHER": statusNeither, "HELD": statusHeld, "WAITED": statusWaited},
		"renew":     {"NEITHER": statusNeither, "HELD": statusHeld},
		"notice":    {"NEITHER": statusNeither, "HELD": statusHeld, "WANTED": statusWanted},
		"downgrade": {"NEITHER": statusNeither, "HELD": statusHeld, "OWNED": statusOwned},
		"force":     {"NEITHER": statusNeither, "HELD": statusHeld},
		"resize":    {"HELD": statusHeld},
	}
	var all []Script
	for _, s := range allScripts {
		onCluster, many := forOne.Replace(forCluster.Replace(source(s.parts))), ""
		if s.many != nil {
			many = forCluster.Replace(source(onNode(s.parts)))
		}
		all = append(all, Script{s.verb, source(s.parts), s.parts, s.arguments, onCluster, many, statuses[s.verb]})
	}
	return all
}

// Waiting returns how many callers wait for a call that takes them along.
func (d *Driver) Waiting() (n int) {
	d.groups.mu.Lock()
	defer d.groups.mu.Unlock()
	all := []*group{d.groups.only}
	for _, node := range d.groups.nodes {
		all = append(all, node.group)
	}
	for _, g := range all {
		if g == nil {
			continue
		}
		g.mu.Lock()
		for _, l := range g.queues {
			n += len(l.waiting)
		}
		g.mu.Unlock()
	}
	return n
}

// Hears reports whether the driver has a subscription, as far as it knows.
func (d *Driver) Hears() bool {
	_, counts := d.news.Known()
	return counts
}

// Dispatch has the driver hear a message.
func (d *Driver) Dispatch(payload string) { d.channel.dispatch(payload, d.news.Hear) }

// Seal returns a message with that news.
func (d *Driver) Seal(news string) string { return d.channel.seal(news) }

// ForOne returns the version of a script that is for one lock.
func ForOne(text string) string { return forOne.Replace(text) }
