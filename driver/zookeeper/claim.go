package zkdriver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// block is how many fences there are between two changes of ZooKeeper, and most is how many of
// these one request gets. A change has 64 bits, so this leaves room for 2^19 elections.
const (
	block = 1 << 12
	most  = 1 << 8
)

// lock is where the claims on one lock are.
type lock struct {
	kind driver.Kind
	name string // as a step of a path
	dir  string // the node that has the claims
}

func (d *Driver) lock(k driver.Kind, name string) lock {
	n := escape(name)
	return lock{k, n, d.root + "/lock/" + string(k) + "/" + n}
}

// escape makes a name of any bytes one step of a path. ZooKeeper forbids the names "." and "..".
func escape(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2E")
	}
	return url.PathEscape(name)
}

// id names a token of the lock among all tokens, as a step of a path.
func (l lock) id(token string) string { return string(l.kind) + "," + l.name + "," + escape(token) }

// grave is the tombstone of a token, and forced has one for each token that ForceUnlock has ended.
func (d *Driver) grave(l lock, token string) string { return d.root + "/dead/" + l.id(token) }
func (d *Driver) forced() string                    { return d.root + "/forced" }

// claim is a node that says that a token holds the lock, or waits for it. Its name says what all
// others must know, so that one request reads the whole queue:
//
//	c,<x or s>,<weight>,<limit>,<place>,<token>,<owner>,<number>
type claim struct {
	node          string // its name
	shared        bool
	weight, limit int64
	token, owner  string

	// number is that of the node, which ZooKeeper gives. place is the place in the queue: that
	// of the claim of the same owner beside which this one holds the lock, or of the one whose
	// hold it has taken over, or its own number.
	number, place int32
}

// record is what a claim says of itself to those that look at it, and at no others.
type record struct {
	Holder string        `json:"holder,omitempty"`
	Since  time.Time     `json:"since"` // on the clock of the client
	TTL    time.Duration `json:"ttl"`
	Fences int64         `json:"fences"`

	// Change is the one of ZooKeeper that made the claim whose place this one has. 0 means its
	// own. First is its first fence among those of the place.
	Change int64 `json:"change,omitempty"`
	First  int64 `json:"first,omitempty"`
}

func (r record) bytes() []byte {
	text, _ := json.Marshal(r) // which cannot fail
	return text
}

func claimOf(r *driver.Request) claim {
	weight, limit := r.Share()
	return claim{shared: r.Shared, weight: weight, limit: limit, token: r.Token, owner: r.Owner}
}

func recordOf(r *driver.Request) record {
	c := record{Holder: r.Holder, Since: time.Now(), TTL: r.TTL}
	if c.Fences = min(max(r.Fences, 1), most); r.Owner != "" {
		c.Fences = 1 // which they share
	}
	return c
}

// title is the name of a claim without its number. at is its place, nil for its own.
func (c *claim) title(at *claim) string {
	mode, place := "x", ""
	if c.shared {
		mode = "s"
	}
	if at != nil {
		place = strconv.FormatInt(int64(at.place), 10)
	}
	return fmt.Sprintf("c,%s,%d,%d,%s,%s,%s,", mode, c.weight, c.limit, place, escape(c.token), escape(c.owner))
}

// parse reads the name of a claim.
func parse(node string) (c claim, ok bool) {
	f := strings.Split(node, ",")
	if len(f) != 8 || f[0] != "c" {
		return c, false
	}
	c.node, c.shared = node, f[1] == "s"
	var errs [6]error
	c.weight, errs[0] = strconv.ParseInt(f[2], 10, 64)
	c.limit, errs[1] = strconv.ParseInt(f[3], 10, 64)
	c.token, errs[2] = url.PathUnescape(f[5])
	c.owner, errs[3] = url.PathUnescape(f[6])
	number, err := strconv.ParseInt(f[7], 10, 32)
	errs[4], c.number, c.place = err, int32(number), int32(number)
	if f[4] != "" {
		number, errs[5] = strconv.ParseInt(f[4], 10, 32)
		c.place = int32(number)
	}
	return c, errs == [6]error{}
}

// queue is the claims on a lock at one time, in the order in which they came. Those that hold the
// lock are the first ones, as many as fit: a holder remains one, since claims only come at the
// end, leave, and become smaller.
//
// The queue may be an old one, as a member shows it that is behind. But it shows all claims that
// came before one that it shows, unless they have left. So it never shows as a holder who is none.
type queue struct {
	claims []claim
	void   []claim // those of a semaphore with another limit, which will withdraw
	limit  int64   // of a semaphore, else 0
	made   int64   // the change that made the node of the lock, 0 if there is none
}

// arrange makes a queue of the nodes in dir, which is a lock with that limit; 0 means any.
func arrange(dir string, nodes []string, limit int64) (*queue, error) {
	q := &queue{claims: make([]claim, 0, len(nodes)), limit: limit}
	for _, node := range nodes {
		c, ok := parse(node)
		switch {
		case !ok:
			return nil, &foreign{dir + "/" + node}
		case limit != 0 && c.limit != limit:
			q.void = append(q.void, c)
		default:
			q.claims = append(q.claims, c)
		}
	}
	slices.SortFunc(q.claims, func(a, b claim) int { return cmp.Or(after(a.place, b.place), after(a.number, b.number)) })
	return q, nil
}

// after compares two numbers of ZooKeeper, which begin anew after 2^32 nodes.
func after(a, b int32) int { return cmp.Compare(a-b, 0) }

// find returns the claim of a token: the first, if there are two. That is so for a moment if the
// answer to a request that made one was lost, and the request was repeated.
func (q *queue) find(token string) *claim {
	for i := range q.claims {
		if q.claims[i].token == token {
			return &q.claims[i]
		}
	}
	return nil
}

// all returns the names of all claims of a token.
func (q *queue) all(token string) (nodes []string) {
	for _, c := range slices.Concat(q.claims, q.void) {
		if c.token == token {
			nodes = append(nodes, c.node)
		}
	}
	return nodes
}

// holders returns those that hold the lock, and how much is left of it for others.
func (q *queue) holders() (holders []claim, left int64) {
	for i, c := range q.claims {
		switch {
		case i == 0:
			left = c.limit - c.weight
		case c.place == q.claims[0].place: // It holds what the first holds, for the same owner.
		case c.weight > left:
			return q.claims[:i], left
		default:
			left -= c.weight
		}
	}
	return q.claims, left
}

// kin is a claim that lets another hold the lock beside it: one of the same owner that holds it
// alone.
func (q *queue) kin(own *claim) *claim {
	for i := range q.claims {
		c := &q.claims[i]
		if c.place == q.claims[0].place && own.owner != "" && c.owner == own.owner && c.weight == c.limit && own.weight == c.limit {
			return c
		}
	}
	return nil
}

func (q *queue) holds(c *claim) bool {
	holders, _ := q.holders()
	return slices.ContainsFunc(holders, func(h claim) bool { return h.node == c.node })
}

// wanted reports whether somebody waits.
func (q *queue) wanted() bool {
	holders, _ := q.holders()
	return len(holders) < len(q.claims)
}

// fits reports whether a claim that came now would hold the lock.
func (q *queue) fits(c *claim) bool {
	holders, left := q.holders()
	return len(q.claims) == 0 || len(holders) == len(q.claims) && c.weight <= left
}

// full reports whether as many wait as the request allows, among the first so many claims.
func (q *queue) full(r *driver.Request, claims int) bool {
	holders, _ := q.holders()
	return r.Wait && r.MaxWaiters > 0 && int64(claims-len(holders)) >= r.MaxWaiters
}

// shared reports whether others of its owner hold the lock beside a claim.
func (q *queue) shared(c *claim) bool {
	return slices.ContainsFunc(q.claims, func(o claim) bool { return o.token != c.token && o.place == c.place })
}

// obstacle is the claim that stands in the way of another: the last of those before it beside
// which it does not fit. nil means that all that happens must be looked at.
func (q *queue) obstacle(c *claim) (last *claim) {
	if c.owner != "" {
		return nil // another of the owner may get it first
	}
	for i := range q.claims {
		switch a := &q.claims[i]; {
		case a.node == c.node:
			return last
		case a.weight+c.weight > c.limit:
			last = a
		}
	}
	return nil
}
