package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
)

// examinePostgres asks a PostgreSQL whose schema is there about itself.
func examinePostgres(ctx context.Context, pool *pgxpool.Pool) []finding {
	var version, commit, fsync, isolation, standbys string
	var number, schema, replicas int
	var standby bool
	err := pool.QueryRow(ctx, `
		SELECT current_setting('server_version'), current_setting('server_version_num')::int, pg_is_in_recovery(),
		       current_setting('synchronous_commit'), current_setting('fsync'), current_setting('default_transaction_isolation'),
		       current_setting('synchronous_standby_names'), (SELECT max(version) FROM holdfast.version)`).
		Scan(&version, &number, &standby, &commit, &fsync, &isolation, &standbys, &schema)
	if err != nil {
		return []finding{{Check: "settings", Level: fail, Text: "cannot tell: " + err.Error(), Advice: "GRANT USAGE ON SCHEMA holdfast, and the rights in the documentation of pgdriver"}}
	}
	findings := []finding{
		judge("version", number >= 140000, fail, "PostgreSQL "+version, "", "use PostgreSQL 14 or later"),
		{Check: "schema", Level: fine, Text: fmt.Sprintf("holdfast, version %d", schema)},
		judge("role", !standby, fail, "primary", "a standby, which takes no writes", "use the primary; target_session_attrs=read-write finds it"),
		judge("disk", commit != "off" && fsync == "on", fail, "synchronous_commit "+commit+", fsync "+fsync,
			": a crash can lose locks, and then there are two holders", "set both to on, for the user of the locks at least"),
		judge("isolation", isolation == "read committed", fail, isolation, ", which the functions refuse", "set default_transaction_isolation to 'read committed' for this user"),
	}
	replication := finding{Check: "replication", Level: warn, Text: "cannot tell whether there are standbys; synchronous_standby_names \"" + standbys + "\"", Advice: "grant SELECT ON pg_stat_replication to this user"}
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_replication").Scan(&replicas); err == nil {
		replication = judgeStandbys(replicas, standbys, commit)
	}
	findings = append(findings, replication)
	var usage float64
	queue := finding{Check: "queue", Level: warn, Text: "cannot tell how full the queue of notifications is", Advice: "grant EXECUTE ON FUNCTION pg_notification_queue_usage() to this user"}
	if err := pool.QueryRow(ctx, "SELECT pg_notification_queue_usage()").Scan(&usage); err == nil { // That shortens it, too.
		queue = judgeQueue(usage)
	}
	findings = append(findings, queue, examineListen(ctx, pool, queue))
	offset, best := time.Duration(0), time.Hour
	_, median, err := latency(func() error {
		var at time.Time
		start := time.Now()
		err := pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at)
		if took := time.Since(start); err == nil && took < best {
			best, offset = took, at.Sub(start.Add(took/2))
		}
		return err
	})
	if err != nil {
		return append(findings, finding{Check: "latency", Level: fail, Text: err.Error()})
	}
	return append(findings, judgeClock(offset, best/2), judgeLatency(median))
}

// judgeStandbys says whether a standby that takes over has all grants.
func judgeStandbys(replicas int, names, commit string) finding {
	f := finding{Check: "replication", Level: fine, Text: fmt.Sprintf("%s, synchronous_standby_names %q", show.Plural(replicas, "standby", "standbys"), names)}
	switch {
	case replicas == 0 && names == "":
	case names == "":
		f.Level, f.Text, f.Advice = warn, f.Text+": a failover can lose the last grants", "set synchronous_standby_names"
	case commit == "local" || commit == "off":
		f.Level, f.Text = warn, f.Text+", synchronous_commit "+commit+", which does not wait for them: a failover can lose the last grants"
		f.Advice = "set synchronous_commit to on, for the user of the locks at least"
	case commit == "remote_write":
		f.Level, f.Text = warn, f.Text+", synchronous_commit remote_write, which does not wait for their disks: a failover can lose the last grants if the machine of the standby crashes, too"
		f.Advice = "set synchronous_commit to on, for the user of the locks at least"
	}
	return f
}

// judgeQueue says how full the queue is that all notifications of a server go through.
func judgeQueue(usage float64) finding {
	f := finding{Check: "queue", Level: fine, Text: fmt.Sprintf("%.0f %% of the queue of notifications in use", 100*usage)}
	if usage >= 0.5 {
		f.Level = warn
		f.Advice = "a session that listens is in a transaction and reads nothing: find the oldest xact_start in pg_stat_activity, and end it with pg_terminate_backend"
	}
	if usage >= 0.99 {
		f.Text += ": no waiter can be told of its turn, so waiters ask instead"
	}
	return f
}

// judge is a finding that is either fine or as bad as that.
func judge(check string, good bool, otherwise level, text, but, advice string) finding {
	if good {
		return finding{Check: check, Level: fine, Text: text}
	}
	if !strings.HasPrefix(but, ":") && !strings.HasPrefix(but, ",") && but != "" {
		text = ""
	}
	return finding{Check: check, Level: otherwise, Text: text + but, Advice: advice}
}

// examineListen listens on a connection for what another one says, by way of the queue.
func examineListen(ctx context.Context, pool *pgxpool.Pool, queue finding) finding {
	ctx, cancel := context.WithTimeout(ctx, newsTimeout)
	defer cancel()
	start := time.Now()
	err := func() error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		// It is not given back: it would go on listening.
		own := conn.Hijack()
		defer func() { _ = own.Close(context.WithoutCancel(ctx)) }()
		channel := "holdfast_doctor_" + strings.ToLower(rand.Text()[:8])
		if _, err := own.Exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
		start = time.Now()
		if _, err := pool.Exec(ctx, "SELECT pg_notify($1, '')", channel); err != nil {
			return err
		}
		_, err = own.WaitForNotification(ctx)
		return err
	}()
	if err != nil && queue.Level != fine {
		return finding{Check: "listening", Level: warn, Text: "no notification came in: " + err.Error(), Advice: "see queue above"}
	}
	if err != nil {
		return finding{
			Check: "listening", Level: warn, Text: "no notification came in: waiters ask every 50 to 250 ms instead of being told: " + err.Error(),
			Advice: "behind a PgBouncer in transaction mode, give programs a direct connection with pgdriver.WithListenConfig",
		}
	}
	return finding{Check: "listening", Level: fine, Text: "a notification came in after " + show.Brief(time.Since(start))}
}
