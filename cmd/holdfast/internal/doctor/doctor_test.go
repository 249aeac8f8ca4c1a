//go:build unix

package doctor

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clitest"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// documented returns the rights that the documentation of the library lists.
func documented(t *testing.T) []string {
	t.Helper()
	doc, err := os.ReadFile("../../../../doc.go")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?s)//\t~holdfast:\* &holdfast:\*(.*?)//\n`).FindSubmatch(doc)
	require.NotNil(t, line)
	return regexp.MustCompile(`\+\S+`).FindAllString(string(line[1]), -1)
}

func TestDoctorTriesTheRightsThatAreDocumented(t *testing.T) {
	tried := []string{"+subscribe", "+unsubscribe"}
	for _, r := range rights("key", "channel") {
		tried = append(tried, r.name)
	}
	assert.ElementsMatch(t, documented(t), tried)
}

func TestDoctorNamesEachRightThatIsMissing(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	admin := s.Client(t)
	all := documented(t)
	examine := func(rules ...string) (levels map[string]level) {
		setuser := []any{"acl", "setuser", "doctor", "reset", "on", ">pw", "+scan"}
		for _, r := range rules {
			setuser = append(setuser, r)
		}
		require.NoError(t, admin.Do(t.Context(), setuser...).Err())
		rdb := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "doctor", "pw" })
		defer func() { _ = rdb.Close() }()
		levels = map[string]level{}
		for _, f := range examineRights(t.Context(), rdb, "holdfast") {
			name, _, _ := strings.Cut(f.Text, " ")
			levels[name] = f.Level
		}
		return levels
	}
	keys := []string{"~holdfast:*", "&holdfast:*"}
	assert.Equal(t, map[string]level{"all": fine}, examine(append(keys, all...)...))
	polling := []string{"+publish", "+subscribe", "+unsubscribe", "+pubsub|numsub"}
	for _, r := range all {
		without := slices.DeleteFunc(slices.Clone(all), func(other string) bool { return other == r })
		want := fail
		if slices.Contains(polling, r) {
			want = warn
		}
		assert.Equal(t, want, examine(append(keys, without...)...)[r], "without %s", r)
	}
	assert.Equal(t, fail, examine(append([]string{"~other:*", "&holdfast:*"}, all...)...)["~holdfast:*"])
	assert.Equal(t, map[string]level{"&holdfast:*": warn}, examine(append([]string{"~holdfast:*", "&other:*"}, all...)...))
	s.RequireTTLs(t, "holdfast:2:doctor:") // what is left of it goes
}

func TestDoctorEndsWith1IfLocksCanBeLost(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t, "--appendonly", "yes")
	p := clitest.Command(t, s, "doctor")
	assert.Equal(t, 0, p.Run())
	assert.Contains(t, p.Stdout.String(), "0 failures, ")
	assert.Contains(t, p.Stdout.String(), "ok    publishing")
	// A machine that is busy hands over slowly, which is worth a warning.
	assert.NotRegexp(t, `(?m)^warn  (?:[^l]|l[^o])`, p.Stdout.String(), "of anything but lock")
	for line := range strings.Lines(p.Stdout.String()) {
		assert.LessOrEqual(t, len(line), 81, line)
	}

	require.NoError(t, s.Client(t).ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	require.NoError(t, s.Client(t).ConfigSet(t.Context(), "maxmemory", "1gb").Err())
	p = clitest.Command(t, s, "doctor", "--json")
	assert.Equal(t, 1, p.Run())
	found := false
	for line := range strings.Lines(p.Stdout.String()) {
		var f finding
		require.NoError(t, json.Unmarshal([]byte(line), &f))
		found = found || f.Check == "eviction" && f.Level == fail && f.Advice == "set maxmemory-policy noeviction"
	}
	assert.True(t, found, &p.Stdout)
}

func TestDoctorRefusesAReplicaAndWarnsOfOneThatIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	master := redistest.Real(t)
	replica := master.Replica(t)
	p := clitest.Command(t, replica, "doctor")
	assert.Equal(t, 1, p.Run())
	assert.Contains(t, p.Stdout.String(), "this is a replica")
	assert.NotContains(t, p.Stdout.String(), "redis: nil")

	p = clitest.Command(t, master, "doctor")
	assert.Equal(t, 0, p.Run())
	assert.Contains(t, p.Stdout.String(), "warn  replication  replicas 1, min-replicas-to-write 0")
	require.NoError(t, master.Client(t).ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	p = clitest.Command(t, master, "doctor")
	assert.Equal(t, 0, p.Run())
	assert.Contains(t, p.Stdout.String(), "ok    replication  replicas 1, 1 of them good enough")
}

func TestDoctorAsksEveryMasterOfACluster(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	p := clitest.Command(t, nil, "doctor", "--store", "redis+cluster://"+c.Nodes[0].Addr())
	assert.Equal(t, 0, p.Run())
	assert.Contains(t, p.Stdout.String(), "ok    cluster      all slots are served")
	assert.Equal(t, 3, strings.Count(p.Stdout.String(), "\nmaster "))
	assert.Contains(t, p.Stdout.String(), "ok    rights       all 3 that a Cluster needs, on all 6 nodes")
}

// A right can be missing on one node alone, such as a replica that becomes a master later.
func TestDoctorNamesEachNodeOfAClusterThatLacksARight(t *testing.T) {
	t.Parallel()
	c := redistest.NewCluster(t)
	doc, err := os.ReadFile("../../../../doc.go")
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(doc), "// On a Cluster the user also needs ")
	require.True(t, ok)
	sentence, _, _ := strings.Cut(text, ".")
	needed := regexp.MustCompile(`\+[a-z|]+`).FindAllString(sentence, -1)
	for _, r := range nodeRights("key") {
		assert.Contains(t, needed, r.name)
	}
	require.Len(t, nodeRights("key"), len(needed))

	grant := func(s *redistest.Server, rights ...string) {
		setuser := []any{"acl", "setuser", "doctor", "reset", "on", ">pw", "~holdfast:*"}
		for _, r := range rights {
			setuser = append(setuser, r)
		}
		require.NoError(t, s.Client(t).Do(t.Context(), setuser...).Err())
	}
	examine := func() []finding {
		rdb := c.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = "doctor", "pw" })
		return examineNodeRights(t.Context(), rdb, "holdfast")
	}
	for _, s := range c.Nodes {
		grant(s, needed...)
	}
	found := examine()
	require.Len(t, found, 1)
	assert.Equal(t, fine, found[0].Level, found[0].Text)

	replica := c.Nodes[len(c.Nodes)-1]
	for _, r := range needed {
		grant(replica, slices.DeleteFunc(slices.Clone(needed), func(other string) bool { return other == r })...)
		found := examine()
		require.Len(t, found, 1, "without %s", r)
		assert.Equal(t, warn, found[0].Level)
		assert.Contains(t, found[0].Text, r+" is missing on "+replica.Addr()+": ")
	}

	for _, s := range c.Nodes {
		grant(s, "+command", "+restore")
	}
	found = examine()
	require.Len(t, found, 1)
	assert.Equal(t, fail, found[0].Level, found[0].Text)
	assert.Contains(t, found[0].Advice, "+cluster|slots")
	for _, s := range c.Nodes {
		s.RequireNoKeys(t, "holdfast:", time.Second)
	}
}

func TestJudgements(t *testing.T) {
	type info = map[string]string
	none := func(string) (string, bool) { return "", true }
	refused := func(string) (string, bool) { return "", false }
	for name, c := range map[string]struct {
		got  finding
		want level
	}{
		"Redis 6.0":                {judgeVersion(info{"redis_version": "6.0.20"}), fail},
		"Redis 6.2":                {judgeVersion(info{"redis_version": "6.2.14"}), fine},
		"Redis 8":                  {judgeVersion(info{"redis_version": "8.0.0"}), fine},
		"Valkey":                   {judgeVersion(info{"redis_version": "7.2.4", "valkey_version": "8.1.0"}), fine},
		"Dragonfly":                {judgeVersion(info{"redis_version": "7.2.0", "dragonfly_version": "df-v1"}), warn},
		"unknown version":          {judgeVersion(info{}), warn},
		"eviction, no limit":       {judgeEviction(info{"maxmemory": "0", "maxmemory_policy": "volatile-lru"}), warn},
		"eviction":                 {judgeEviction(info{"maxmemory": "1", "maxmemory_policy": "volatile-lru"}), fail},
		"no eviction":              {judgeEviction(info{"maxmemory": "1", "maxmemory_policy": "noeviction"}), fine},
		"no persistence":           {judgePersistence(info{"aof_enabled": "0"}, none), warn},
		"append only":              {judgePersistence(info{"aof_enabled": "1", "aof_last_write_status": "ok"}, none), fine},
		"append only, disk full":   {judgePersistence(info{"aof_enabled": "1", "aof_last_write_status": "err"}, none), fail},
		"append only, refused":     {judgePersistence(info{"aof_enabled": "1"}, refused), warn},
		"KeyDB, refused":           {judgeReplication(info{"role": "master", "connected_slaves": "0"}, "unknown", "0"), warn},
		"two masters":              {judgeReplication(info{"role": "master", "connected_slaves": "0"}, "yes", "0"), fail},
		"two masters, says INFO":   {judgeReplication(info{"role": "active-replica"}, "", "0"), fail},
		"no replica, but one must": {judgeReplication(info{"role": "master", "connected_slaves": "0", "min_slaves_good_slaves": "0"}, "", "0"), fail},
		"stranger, Redis 6.2":      {judgeUsers([]string{"user default on nopass ~* &* +@all", "user s on #1 ~s:* &* -@all +publish"}, "holdfast"), warn},
		"stranger, Redis 7":        {judgeUsers([]string{"user s on #1 %R~s:* &hold* -@all +@pubsub"}, "holdfast"), warn},
		"own users":                {judgeUsers([]string{"user a on ~holdfast:* &holdfast:* -@all +publish", "user b off &* +@all", "user c on &* -@all +get", "user d on ~d resetchannels +@all"}, "holdfast"), fine},
		"no standby":               {judgeStandbys(0, "", "local"), fine},
		"asynchronous standby":     {judgeStandbys(1, "", "on"), warn},
		"synchronous standby":      {judgeStandbys(1, "*", "on"), fine},
		"standby that applies":     {judgeStandbys(1, "*", "remote_apply"), fine},
		"not waited for":           {judgeStandbys(1, "*", "local"), warn},
		"disk not waited for":      {judgeStandbys(1, "*", "remote_write"), warn},
		"handed over":              {judgeLock(1e6, 5e6, nil), fine},
		"handed over slowly":       {judgeLock(1e6, 144e6, []finding{{Check: "publishing", Level: fine}}), warn},
		"old etcd":                 {judgeEtcd("3.5.12"), fail},
		"old etcd 3.4":             {judgeEtcd("3.4.30"), fail},
		"etcd 3.4":                 {judgeEtcd("3.4.31"), fine},
		"etcd":                     {judgeEtcd("3.7.0"), fine},
		"old ZooKeeper":            {judgeZooKeeper("3.4.14-abc, built on"), fail},
		"ZooKeeper":                {judgeZooKeeper("3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on"), fine},
		"silent ZooKeeper":         {judgeZooKeeper(""), warn},
		"far away":                 {judgeLatency(80e6), warn},
		"near":                     {judgeLatency(1e6), fine},
		"empty queue":              {judgeQueue(0), fine},
		"half a queue":             {judgeQueue(0.5), warn},
		"full queue":               {judgeQueue(1), warn},
		"wrong clock":              {judgeClock(-5e9, 1e6), warn},
		"clock of a slow server":   {judgeClock(3e9, 4e9), fine},
	} {
		assert.Equal(t, c.want, c.got.Level, "%s: %+v", name, c.got)
		if c.want != fine {
			assert.NotEmpty(t, c.got.Advice, name)
		}
	}
}

// What could not be asked is not taken for off.
func TestDoctorCannotTellWhatItMayNotAsk(t *testing.T) {
	refused := func(string) (string, bool) { return "", false }
	for _, aof := range []string{"", "0", "1"} {
		f := judgePersistence(map[string]string{"aof_enabled": aof}, refused)
		assert.Equal(t, warn, f.Level, "FOUL: aof_enabled %q", aof)
		assert.Contains(t, f.Text, "cannot tell", "FOUL: aof_enabled %q", aof)
		assert.Contains(t, f.Advice, "+config|get", aof)
	}
	master := func(more ...string) map[string]string {
		info := map[string]string{"role": "master"}
		for i := 0; i < len(more); i += 2 {
			info[more[i]] = more[i+1]
		}
		return info
	}
	_, mode := judgeServer("srvr is not executed because it is not in the whitelist.\n")
	assert.Empty(t, mode)
	for name, f := range map[string]finding{
		"replicas of a Redis":         judgeReplication(master(), "", "0"),
		"min-replicas-to-write":       judgeReplication(master("connected_slaves", "2"), "", "unknown"),
		"rights of a user of etcd":    judgeStatus(rpctypes.ErrPermissionDenied),
		"etcd without authentication": judgeStatus(rpctypes.ErrUserEmpty),
		"version of etcd":             judgeEtcd("none"),
		"srvr of a ZooKeeper":         first(judgeServer("srvr is not executed because it is not in the whitelist.\n")),
		"a proxy before a ZooKeeper":  first(judgeServer("")),
	} {
		assert.Equal(t, warn, f.Level, "FOUL: %s: %+v", name, f)
		assert.Contains(t, f.Text, "cannot tell", "FOUL: %s", name)
		assert.NotEmpty(t, f.Advice, name)
	}
	// And what is known is said.
	assert.Equal(t, "replicas 2, 1 of them good enough for min-replicas-to-write",
		judgeReplication(master("connected_slaves", "2", "min_slaves_good_slaves", "1"), "", "unknown").Text)
	assert.Contains(t, judgeReplication(master("connected_slaves", "2"), "", "0").Text, "min-replicas-to-write 0")
	assert.Contains(t, judgeStatus(context.DeadlineExceeded).Text, "no answer")
	assert.Equal(t, fail, first(judgeServer("This ZooKeeper instance is not currently serving requests\n")).Level)
	assert.Equal(t, fail, first(judgeServer("Zookeeper version: 3.8.0-5a\nMode: read-only\n")).Level)
	own, mode := judgeServer("Zookeeper version: 3.8.0-5a02a05, built on 2022-02-25 08:49 UTC\nLatency min/avg/max: 0/0.0/0\nMode: follower\n")
	assert.Equal(t, "follower", mode)
	assert.Equal(t, "ZooKeeper 3.8.0", own[0].Text)
}

func first(all []finding, _ string) finding { return all[0] }

// A client goes from one server of the URL to the next. If these have different locks, two hold the same one.
func TestDoctorFailsURLsOfTwoZooKeepers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		modes   map[string]int
		unknown int
		level   level
		any     bool
	}{
		"an ensemble":              {map[string]int{"leader": 1, "follower": 2, "observer": 1}, 0, fine, true},
		"a part of one":            {map[string]int{"follower": 2}, 0, warn, true},
		"a silent one":             {nil, 1, warn, true},
		"one alone":                {map[string]int{"standalone": 1}, 0, finding{}.Level, false},
		"one alone beside another": {map[string]int{"standalone": 2}, 0, fail, true},
		"one alone beside members": {map[string]int{"standalone": 1, "follower": 1}, 0, fail, true},
		"two leaders":              {map[string]int{"leader": 2, "follower": 4}, 0, fail, true},
	} {
		f, any := judgeMembers(c.modes, c.unknown)
		assert.Equal(t, c.any, any, name)
		assert.Equal(t, c.level, f.Level, "%s: %+v", name, f)
	}
}

// A user that may ask for a lock need not be one that may ask for everything.
func TestDoctorTellsWhatItCanAsAUserOfPostgreSQLWithFewRights(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Start(t, "-c", "fsync=on").DSN()
	admin, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	require.NoError(t, pgdriver.Migrate(t.Context(), admin))
	for _, statement := range []string{
		"CREATE USER app",
		"GRANT USAGE ON SCHEMA holdfast TO app",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO app",
		"GRANT USAGE ON ALL SEQUENCES IN SCHEMA holdfast TO app",
		"REVOKE SELECT ON pg_stat_replication FROM PUBLIC",
		"REVOKE EXECUTE ON FUNCTION pg_notification_queue_usage() FROM PUBLIC",
	} {
		_, err := admin.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	app, err := pgxpool.New(t.Context(), dsn+" user=app")
	require.NoError(t, err)
	t.Cleanup(app.Close)
	levels := map[string]level{}
	for _, f := range examinePostgres(t.Context(), app) {
		levels[f.Check] = f.Level
		assert.Equal(t, f.Check == "replication" || f.Check == "queue", strings.Contains(f.Text, "cannot tell"), "FOUL: %+v", f)
	}
	assert.Equal(t, map[string]level{
		"version": fine, "schema": fine, "role": fine, "disk": fine, "isolation": fine, "replication": warn, "queue": warn,
		"listening": fine, "clock": fine, "latency": fine,
	}, levels)
}

// Advice to look above names a line that is there, and says what is wrong.
func TestAdviceOfASlowLockNamesALineThatIsThere(t *testing.T) {
	for _, check := range []string{"publishing", "listening"} {
		assert.Equal(t, "see "+check+" above", judgeLock(0, 1e9, []finding{{Check: check, Level: warn}}).Advice)
	}
	assert.NotContains(t, judgeLock(0, 1e9, []finding{{Check: "latency", Level: fine}}).Advice, "above")
}

func TestDoctorAdvisesToWaitForADiskThatMayNotHaveTheLastGrants(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		redis, valkey, policy string
		want                  []string
	}{
		{"7.0.15", "", "everysec", []string{"with Redis 8", "appendfsync always"}},
		{"7.4.2", "", "everysec", []string{"with Redis 8", "appendfsync always"}},
		{"7.2.4", "8.0.1", "everysec", []string{"with Redis 8", "appendfsync always"}},
		{"7.0.15", "", "no", []string{"with Redis 8", "appendfsync always", "appendfsync is everysec"}},
		{"7.2.4", "8.0.1", "no", []string{"with Redis 8", "appendfsync always", "appendfsync is everysec"}},
		{"8.0.0", "", "everysec", []string{"WithFsync(0"}},
		{"8.0.0", "", "no", []string{"WithFsync(0", "appendfsync is everysec"}},
		{"8.0.0", "", "always", nil},
	} {
		info := map[string]string{"redis_version": c.redis, "valkey_version": c.valkey, "aof_enabled": "1", "aof_last_write_status": "ok"}
		f := judgePersistence(info, func(string) (string, bool) { return c.policy, true })
		assert.Equal(t, fine, f.Level)
		assert.Equal(t, c.want == nil, f.Advice == "", c)
		for _, word := range []string{"WithFsync(0", "with Redis 8", "appendfsync is everysec", "appendfsync always"} {
			assert.Equal(t, slices.Contains(c.want, word), strings.Contains(f.Advice, word), "%v: %s", c, f.Advice)
		}
	}
	found := examineServer(t.Context(), redistest.Valkey(t, "--appendonly", "yes", "--appendfsync", "everysec").Client(t))
	i := slices.IndexFunc(found, func(f finding) bool { return f.Check == "persistence" })
	require.GreaterOrEqual(t, i, 0)
	assert.Contains(t, found[i].Advice, "appendfsync always")
}

func TestDoctorNamesUsersWithChannelsButNoLocks(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	admin := s.Client(t)
	user := func(name string, rules ...any) {
		require.NoError(t, admin.Do(t.Context(), append([]any{"acl", "setuser", name, "reset", "on", ">pw"}, rules...)...).Err())
	}
	user("locks", "~holdfast:*", "&holdfast:*", "+publish")
	user("other", "~other:*", "resetchannels", "+@all")
	assert.Equal(t, fine, examineUsers(t.Context(), admin, "holdfast").Level)
	user("stranger", "~other:*", "&*", "+publish", "+psubscribe")
	f := examineUsers(t.Context(), admin, "holdfast")
	assert.Equal(t, warn, f.Level)
	assert.Contains(t, f.Text, "stranger may")
	rdb := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "locks", "pw" })
	assert.Contains(t, examineUsers(t.Context(), rdb, "holdfast").Text, "cannot tell")
}
