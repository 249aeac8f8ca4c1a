package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
)

// examineServers asks each master about itself.
func examineServers(ctx context.Context, rdb redis.UniversalClient) []finding {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return examineServer(ctx, rdb)
	}
	findings := []finding{examineCluster(ctx, cluster)}
	var mu sync.Mutex
	_ = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		own := examineServer(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		for _, f := range own {
			f.Node = "master " + node.Options().Addr
			findings = append(findings, f)
		}
		return nil
	})
	slices.SortStableFunc(findings, func(a, b finding) int { return cmp.Compare(a.Node, b.Node) })
	return findings
}

// examineRedis asks each master about itself, and one connection what its user may do.
func examineRedis(ctx context.Context, rdb redis.UniversalClient, prefix string) []finding {
	findings := examineServers(ctx, rdb)
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		all := append(examineRights(ctx, rdb, prefix), examineNodeRights(ctx, cluster, prefix)...)
		for _, f := range append(all, append(examineNews(ctx, rdb, prefix), examineUsers(ctx, rdb, prefix))...) {
			f.Node = "all"
			findings = append(findings, f)
		}
		return findings
	}
	findings = append(findings, examineRights(ctx, rdb, prefix)...)
	findings = append(findings, examineNews(ctx, rdb, prefix)...)
	return append(findings, examineUsers(ctx, rdb, prefix))
}

func examineCluster(ctx context.Context, rdb *redis.ClusterClient) finding {
	text, err := rdb.ClusterInfo(ctx).Result()
	if err != nil {
		return finding{Check: "cluster", Level: warn, Text: "cannot tell: " + err.Error(), Advice: "grant +cluster|info"}
	}
	info := fields(text)
	if info["cluster_state"] != "ok" || info["cluster_slots_ok"] != "16384" {
		return finding{
			Check: "cluster", Level: fail, Advice: "see CLUSTER NODES; redis-cli --cluster fix",
			Text: fmt.Sprintf("state %s, %s of 16384 slots are served: some locks cannot be taken", info["cluster_state"], info["cluster_slots_ok"]),
		}
	}
	return finding{Check: "cluster", Level: fine, Text: fmt.Sprintf("all slots are served, by %s masters", info["cluster_size"])}
}

// fields returns what INFO and the like say.
func fields(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			all[name] = value
		}
	}
	return all
}

// examineServer asks a server about its settings, its clock and its speed.
func examineServer(ctx context.Context, rdb redis.Cmdable) []finding {
	text, err := rdb.Info(ctx).Result()
	var findings []finding
	if err != nil {
		findings = append(findings, finding{
			Check: "settings", Level: warn, Advice: "run the doctor as a user with +info and +config|get",
			Text: "cannot tell version, eviction, persistence and replication: " + err.Error(),
		})
	} else {
		info := fields(text)
		config := func(name string) (value string, known bool) {
			all, _ := rdb.ConfigGet(ctx, name).Result()
			value, known = all[name]
			return value, known
		}
		findings = append(findings, judgeVersion(info), judgeEviction(info), judgePersistence(info, config))
		active, known := config("active-replica")
		if keyDB(info) && !known {
			active = "unknown"
		}
		least, known := config("min-replicas-to-write")
		if !known {
			least = "unknown"
		}
		findings = append(findings, judgeReplication(info, active, least))
	}
	return append(findings, examineTime(ctx, rdb)...)
}

func judgeVersion(info map[string]string) finding {
	text := info["redis_version"] // that Valkey and KeyDB are compatible with
	f := finding{Check: "version", Level: fine, Text: "Redis " + text}
	switch {
	case info["valkey_version"] != "":
		f.Text = "Valkey " + info["valkey_version"]
	case keyDB(info):
		f.Text = "KeyDB, like Redis " + text
	case info["dragonfly_version"] != "":
		f.Text = "Dragonfly " + info["dragonfly_version"]
		f.Level, f.Text, f.Advice = warn, f.Text+", with which holdfast is not tested", "use Redis or Valkey"
	}
	if text == "" {
		return finding{Check: "version", Level: warn, Text: "cannot tell", Advice: "make sure that it is like Redis 6.2 or later"}
	}
	if major, minor, err := version(info); err != nil || major < 6 || major == 6 && minor < 2 {
		f.Level, f.Advice = fail, "use Redis 6.2 or later, or Valkey"
	}
	return f
}

// keyDB reports whether a server is KeyDB, the only one that has active replicas.
func keyDB(info map[string]string) bool {
	return info["mvcc_depth"] != "" || strings.Contains(info["executable"], "keydb")
}

// version returns the version of Redis that a server is compatible with.
func version(info map[string]string) (major, minor int, err error) {
	_, err = fmt.Sscanf(info["redis_version"], "%d.%d", &major, &minor)
	return major, minor, err
}

func judgeEviction(info map[string]string) finding {
	policy, limit := info["maxmemory_policy"], info["maxmemory"]
	f := finding{Check: "eviction", Level: fine, Text: "maxmemory-policy " + policy, Advice: "set maxmemory-policy noeviction"}
	switch {
	case policy == "noeviction":
		f.Advice = ""
	case policy == "":
		f.Level, f.Text, f.Advice = warn, "cannot tell the maxmemory-policy", "make sure that it is noeviction"
	case limit == "0":
		f.Level, f.Text = warn, f.Text+": it takes locks away if somebody sets a maxmemory"
	default:
		f.Level, f.Text = fail, f.Text+": a full memory takes locks away from their holders"
	}
	return f
}

func judgePersistence(info map[string]string, config func(string) (value string, known bool)) finding {
	const ask = "run the doctor as a user with +config|get, or ask who runs the server"
	f := finding{Check: "persistence", Level: fine, Advice: "set appendonly yes; a restart of the server without it lets in a second holder, which only fences can tell"}
	switch {
	case info["loading"] == "1":
		f.Level, f.Text, f.Advice = warn, "the server is loading its data: it serves nothing yet", "wait"
	case info["aof_enabled"] == "1" && info["aof_last_write_status"] == "err":
		f.Level, f.Text, f.Advice = fail, "the append-only file cannot be written", "see the log of the server; is the disk full?"
	case info["aof_enabled"] == "1":
		fsync, known := config("appendfsync")
		f.Advice = ""
		switch {
		case !known:
			f.Level, f.Text = warn, "appendonly, cannot tell appendfsync: unless it is always, a crash of the machine can lose the last grants"
			f.Advice = ask
		case fsync == "everysec", fsync == "no":
			f.Text = "appendonly, appendfsync " + fsync + ": survives a restart; a crash of the machine can lose the last grants"
			f.Advice = adviseFsync(info, fsync)
		default:
			f.Text = strings.TrimSpace("appendonly " + fsync)
		}
	default:
		f.Level = warn
		switch save, known := config("save"); {
		case info["aof_enabled"] == "":
			f.Text, f.Advice = "cannot tell: a restart may forget locks", ask
		case !known:
			f.Text, f.Advice = "no append-only file, cannot tell whether there are snapshots: a restart forgets some locks or all", f.Advice+"; "+ask
		case save != "":
			f.Text = "snapshots only: a restart forgets the locks since the last one"
		default:
			f.Text = "none: a restart forgets all locks"
		}
	}
	return f
}

// adviseFsync says how a crash of the machine loses no grant. Redis tells the truth of its disk from 8.0
// on, see https://github.com/redis/redis/pull/13793, and Valkey up to 9.1 at least does not.
func adviseFsync(info map[string]string, policy string) string {
	advice := "WithFsync(0, 3*time.Second) has locks of holdfast's own form on the disk before they are trusted"
	if major, _, _ := version(info); info["valkey_version"] != "" || major < 8 {
		advice = "appendfsync always closes that; with Redis 8 so does WithFsync, for the locks that it is given to"
	}
	if policy == "no" {
		advice += ", once appendfsync is everysec"
	}
	return advice
}

// judgeReplication judges what INFO says, with the settings active-replica and min-replicas-to-write.
func judgeReplication(info map[string]string, active, least string) finding {
	f := finding{Check: "replication", Level: fine}
	// INFO says how many replicas are good enough if some must be. Without that line none need be, or
	// the line was left out.
	replicas, good := info["connected_slaves"], info["min_slaves_good_slaves"]
	switch role := info["role"]; {
	case active == "yes" || role == "active-replica":
		f.Level, f.Text = fail, "active-replica: each of two masters grants the same lock to somebody else"
		f.Advice = "set active-replica no, and keep locks on one master"
	case role == "":
		f.Level, f.Text, f.Advice = warn, "cannot tell", "make sure that this is a master"
	case role == "master" && active == "unknown":
		f.Level, f.Text = warn, "a master; cannot tell active-replica, with which each of two masters grants the same lock"
		f.Advice = "make sure that it is no, or run the doctor as a user with +config|get"
	case role != "master":
		f.Level, f.Text, f.Advice = fail, "this is a replica, which takes no writes", "use the master, or redis+sentinel://"
	case replicas == "":
		f.Level, f.Text, f.Advice = warn, "a master; cannot tell whether it has replicas", "set min-replicas-to-write 1 and min-replicas-max-lag 1 if it has"
	case replicas == "0" && good != "":
		f.Level, f.Text, f.Advice = fail, "no replica, and min-replicas-to-write refuses all writes until there is one", "start a replica, or set min-replicas-to-write 0"
	case replicas == "0":
		f.Text = "a master without replicas: no failover, so none can lose a grant"
	case good == "" && least == "unknown":
		f.Level, f.Text = warn, fmt.Sprintf("replicas %s, cannot tell min-replicas-to-write: if it is 0, after a failover an old master that lives on goes on granting", replicas)
		f.Advice = "make sure that it is 1 and min-replicas-max-lag 1 on all servers, or run the doctor as a user with +config|get"
	case good == "":
		f.Level, f.Text = warn, fmt.Sprintf("replicas %s, min-replicas-to-write 0: after a failover an old master that lives on goes on granting", replicas)
		f.Advice = "set min-replicas-to-write 1 and min-replicas-max-lag 1 on all servers; WithReplicas has grants confirmed"
	default:
		f.Text = fmt.Sprintf("replicas %s, %s of them good enough for min-replicas-to-write", replicas, good)
	}
	return f
}

// examineTime compares the clocks, and measures how long a question takes.
func examineTime(ctx context.Context, rdb redis.Cmdable) []finding {
	offset, best := time.Duration(0), time.Hour
	_, median, err := latency(func() error {
		start := time.Now()
		at, err := rdb.Time(ctx).Result()
		if took := time.Since(start); err == nil && took < best {
			best, offset = took, at.Sub(start.Add(took/2))
		}
		return err
	})
	if err != nil {
		return []finding{{Check: "clock", Level: warn, Text: "cannot tell: " + err.Error(), Advice: "grant +time"}}
	}
	return []finding{judgeClock(offset, best/2), judgeLatency(median)}
}

// right is a right that a user of Redis needs, and a command that tells whether it has it.
type right struct {
	name string
	args []any
	news bool // without it waiters poll
}

// rights are those in the documentation of package holdfast, in an order in which the
// commands work on one key.
func rights(key, channel string) []right {
	return []right{
		{"+eval", []any{"eval", "return 1", 1, key}, false},
		{"+evalsha", []any{"evalsha", strings.Repeat("0", 40), 1, key}, false}, // NOSCRIPT is a yes
		{"+time", []any{"time"}, false},
		{"+hset", []any{"hset", key, "f", "v"}, false},
		{"+pexpireat", []any{"pexpireat", key, time.Now().Add(10 * time.Second).UnixMilli()}, false},
		{"+pttl", []any{"pttl", key}, false},
		{"+hmget", []any{"hmget", key, "f"}, false},
		{"+hget", []any{"hget", key, "f"}, false},
		{"+hgetall", []any{"hgetall", key}, false},
		{"+hdel", []any{"hdel", key, "f"}, false},
		{"+set", []any{"set", key, "v", "px", 10_000}, false},
		{"+mget", []any{"mget", key}, false},
		{"+exists", []any{"exists", key}, false},
		{"+del", []any{"del", key}, false},
		{"+publish", []any{"publish", channel, "doctor"}, true},
		{"+pubsub|numsub", []any{"pubsub", "numsub", channel}, true},
	}
}

// examineRights tries each right.
func examineRights(ctx context.Context, rdb redis.UniversalClient, prefix string) []finding {
	key := scratch(prefix)
	var findings []finding
	missing := map[string]bool{}
	lacks := func(name string, err error, news bool) {
		f := finding{Check: "rights", Level: fail, Text: name + " is missing: locks do not work", Advice: "ACL SETUSER NAME " + name}
		switch text := err.Error(); {
		case !strings.HasPrefix(text, "NOPERM"):
			f.Text, f.Advice = name+" cannot be tried: "+text, ""
			name, _, _ = strings.Cut(text, " ") // READONLY, for example, and once is enough
		case strings.Contains(text, " key"):
			name = "~" + prefix + ":*"
			f.Text, f.Advice = name+" is missing: locks do not work", "ACL SETUSER NAME "+name
		case strings.Contains(text, " channel"):
			name = "&" + prefix + ":*"
			f.Text, f.Advice = name+" is missing", "ACL SETUSER NAME "+name
		}
		if news {
			f.Level = warn
			f.Text = strings.Replace(f.Text, ": locks do not work", "", 1) + ": waiters ask every 50 to 250 ms instead of being told"
		}
		if !missing[name] { // one key can be wrong for many
			findings = append(findings, f)
		}
		missing[name] = true
	}
	tried := 0
	for _, r := range rights(key, key) {
		tried++
		if err := rdb.Do(ctx, r.args...).Err(); err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			lacks(r.name, err, r.news)
		}
	}
	sub := rdb.Subscribe(ctx)
	defer func() { _ = sub.Close() }()
	for _, r := range []struct {
		name string
		ask  func(context.Context, ...string) error
	}{{"+subscribe", sub.Subscribe}, {"+unsubscribe", sub.Unsubscribe}} {
		tried++
		err := r.ask(ctx, key)
		if err == nil {
			_, err = sub.ReceiveTimeout(ctx, newsTimeout)
		}
		if err != nil {
			lacks(r.name, err, true)
		}
	}
	if err := rdb.Do(ctx, "scan", 0, "count", 1).Err(); err != nil && strings.HasPrefix(err.Error(), "NOPERM") {
		findings = append(findings, finding{Check: "rights", Level: warn, Text: "+scan is missing: only holdfast ls needs it", Advice: "ACL SETUSER NAME +scan"})
	}
	if len(missing) == 0 {
		all := finding{Check: "rights", Level: fine, Text: fmt.Sprintf("all %d that locks need, on keys and channels %s:*", tried, prefix)}
		findings = append([]finding{all}, findings...)
	}
	return findings
}

// nodeRight is a right that a user needs on every node of a Cluster, replicas included.
type nodeRight struct {
	name    string
	args    []any
	without string // what happens then
}

// nodeRights are those in the documentation of package holdfast. RESTORE changes nothing: if
// the key is on that node, it is refused for its payload, and otherwise because it is elsewhere.
func nodeRights(key string) []nodeRight {
	return []nodeRight{
		{"+cluster|slots", []any{"cluster", "slots"}, "clients cannot learn there which node has a lock"},
		{"+command", []any{"command"}, "clients ask for it in vain, again and again"},
		{"+restore", []any{"restore", key, 0, "", "replace"}, "a lock whose first waiter comes just while its slot moves can be lost"},
	}
}

// examineNodeRights tries these rights on every node.
func examineNodeRights(ctx context.Context, rdb *redis.ClusterClient, prefix string) []finding {
	var mu sync.Mutex
	nodes, missing := 0, map[string][]string{}
	rights := nodeRights(scratch(prefix))
	err := rdb.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error {
		for _, r := range rights {
			err := node.Do(ctx, r.args...).Err()
			if redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), " run the ") {
				mu.Lock()
				missing[r.name] = append(missing[r.name], node.Options().Addr)
				mu.Unlock()
			}
		}
		mu.Lock()
		nodes++
		mu.Unlock()
		return nil
	})
	if err != nil {
		return []finding{{Check: "rights", Level: fail, Text: "the nodes of the Cluster are not known: " + err.Error(), Advice: "ACL SETUSER NAME +cluster|slots, on every node"}}
	}
	if len(missing) == 0 {
		return []finding{{Check: "rights", Level: fine, Text: fmt.Sprintf("all %d that a Cluster needs, on all %d nodes", len(rights), nodes)}}
	}
	var findings []finding
	for _, r := range rights {
		if where := missing[r.name]; where != nil {
			slices.Sort(where)
			findings = append(findings, finding{
				Check: "rights", Level: warn, Advice: "ACL SETUSER NAME " + r.name + ", on every node",
				Text: fmt.Sprintf("%s is missing on %s: %s", r.name, strings.Join(where, ", "), r.without),
			})
		}
	}
	return findings
}

// scratch is the name of a key and channel that belong to no lock.
func scratch(prefix string) string { return prefix + ":2:doctor:" + rand.Text()[:8] }

// newsTimeout is how long a message may take.
const newsTimeout = 2 * time.Second

// examineNews has a script publish a message, as those do that release a lock.
func examineNews(ctx context.Context, rdb redis.UniversalClient, prefix string) []finding {
	channel := scratch(prefix)
	polls := "waiters ask every 50 to 250 ms instead of being told"
	f := finding{Check: "publishing", Level: warn, Advice: "see whether the server, or a proxy before it, passes messages on"}
	sub := rdb.Subscribe(ctx, channel)
	defer func() { _ = sub.Close() }()
	if _, err := sub.ReceiveTimeout(ctx, newsTimeout); err != nil {
		f.Text = "no subscription: " + polls + ": " + err.Error()
		return []finding{f}
	}
	start := time.Now()
	reply, err := rdb.Do(ctx, "eval", "local r = redis.pcall('publish', ARGV[1], 'doctor'); return type(r) == 'table' and r.err or ''", 1, channel, channel).Text()
	if err != nil || reply != "" {
		if err != nil {
			reply = err.Error()
		}
		f.Text, f.Advice = "a script may not publish: "+polls+": "+reply, "allow PUBLISH in scripts"
		return []finding{f}
	}
	for {
		m, err := sub.ReceiveTimeout(ctx, newsTimeout)
		if err != nil {
			f.Text = "a message that a script published did not come in: " + polls
			return []finding{f}
		}
		if _, ok := m.(*redis.Message); ok {
			return []finding{{Check: "publishing", Level: fine, Text: "a message from a script came in after " + show.Brief(time.Since(start))}}
		}
	}
}

// examineUsers looks for users with a right to the channels of locks, but none to the locks.
func examineUsers(ctx context.Context, rdb redis.UniversalClient, prefix string) finding {
	rules, err := rdb.Do(ctx, "acl", "list").StringSlice()
	if err != nil {
		return finding{Check: "users", Level: fine, Text: "cannot tell who else may hear and publish on the channels of locks; the doctor would need +acl|list: " + err.Error()}
	}
	return judgeUsers(rules, prefix)
}

// judgeUsers judges the rules of users as ACL LIST has them, "user NAME on ~keys &channels -@all +..."
func judgeUsers(rules []string, prefix string) finding {
	var strangers []string
	for _, rule := range rules {
		word := strings.Fields(rule)
		may := func(pattern byte, all string) bool {
			return slices.ContainsFunc(word, func(w string) bool {
				w = strings.TrimLeft(w, "(")
				if w == all {
					return true
				}
				glob := w[1:]
				if _, keys, ok := strings.Cut(w, "~"); w[0] == '%' && ok { // %RW~keys
					w, glob = "~", keys
				}
				before, _, open := strings.Cut(strings.TrimRight(glob, ")"), "*")
				return w[0] == pattern && (strings.HasPrefix(before, prefix+":") || open && strings.HasPrefix(prefix+":", before))
			})
		}
		uses := slices.ContainsFunc(word, func(w string) bool {
			return slices.Contains([]string{"allcommands", "+@all", "+@pubsub", "+publish", "+subscribe", "+psubscribe"}, strings.TrimRight(strings.TrimLeft(w, "("), ")"))
		})
		if len(word) > 2 && slices.Contains(word, "on") && may('&', "allchannels") && uses && !may('~', "allkeys") {
			strangers = append(strangers, word[1])
		}
	}
	if strangers == nil {
		return finding{Check: "users", Level: fine, Text: "nobody else has a right to the channels of locks"}
	}
	return finding{
		Check: "users", Level: warn, Advice: "ACL SETUSER NAME resetchannels, and the channels that the user needs; set acl-pubsub-default resetchannels",
		Text: strings.Join(strangers, ", ") + " may use the channels of locks, but not the locks: can hear tokens, and cost clients time",
	}
}
