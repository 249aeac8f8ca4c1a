// Package doctor is holdfast doctor, which judges a store.
package doctor

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/urfave/cli/v3"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/flags"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store/zookeeper"
	"github.com/holdfast-go/holdfast/driver"
)

const help = `Judges a store: whether locks on it work, how fast, and what could make them
be lost. Each line begins with

   ok     as it should be
   warn   locks work, but more slowly, or can be lost in a case that is named
   fail   locks do not work, or will be lost

Below a warn or fail, and some ok, stands what to do. The doctor takes a lock
of its own, twice, and writes keys of its own below the prefix, which vanish
within a minute or so.

The rights of the user of Redis are tried one by one. To see all, the doctor
itself also needs +info, +config|get and +acl|list, and ls needs +scan; locks
need none of these.

With --json each line is an object:

   {"check":"version","level":"ok","text":"Redis 7.0.15"}

Example:
   holdfast doctor --store rediss://locks:secret@redis.internal:6379

Exit codes: 0 if nothing fails; 1 if something does;
   64   wrong command line
   69   no answer from the store, or a refusal`

// level is how bad a finding is.
type level string

const (
	fine level = "ok"
	warn level = "warn"
	fail level = "fail"
)

// finding is what the doctor says of one thing.
type finding struct {
	Node   string `json:"node,omitempty"` // of several
	Check  string `json:"check"`
	Level  level  `json:"level"`
	Text   string `json:"text"`
	Advice string `json:"advice,omitempty"`
}

// Command is holdfast doctor.
func Command() *cli.Command {
	return &cli.Command{
		Name:            "doctor",
		Usage:           "judge a store: are locks safe on it?",
		UsageText:       "holdfast doctor [options]",
		Description:     help,
		HideHelpCommand: true,
		OnUsageError:    flags.OnUsageError,
		ArgValidator:    flags.NoArguments,
		Flags:           append([]cli.Flag{flags.JSON()}, store.Flags()...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
			defer stop()
			a := store.AddressOf(cmd)
			s, err := a.Open(ctx)
			if err != nil {
				return err
			}
			defer s.Close()
			findings := examine(ctx, s, a.Prefix)
			if ctx.Err() != nil {
				return exit.With(exit.Signal+int(syscall.SIGINT), errors.New("interrupted"))
			}
			if err := writeFindings(os.Stdout, s.Name, findings, cmd.Bool("json")); err != nil {
				return exit.With(exit.Failure, err)
			}
			if slices.ContainsFunc(findings, func(f finding) bool { return f.Level == fail }) {
				return exit.Silent(exit.Failure)
			}
			return nil
		},
	}
}

// examine asks the store all that there is to ask.
func examine(ctx context.Context, s *store.Store, prefix string) []finding {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var findings []finding
	switch client := s.Client.(type) {
	case *pgxpool.Pool:
		findings = examinePostgres(ctx, client)
	case *clientv3.Client:
		findings = examineEtcd(ctx, client, prefix)
	case *zookeeper.Servers:
		findings = examineZooKeeper(client)
	default:
		if s.Form != nil {
			findings = append(examineServers(ctx, s.Redis), examineForm(ctx, s.Form, s.Redis, prefix)...)
		} else {
			findings = examineRedis(ctx, s.Redis, prefix)
		}
	}
	return append(findings, tryLock(ctx, s, findings))
}

// tryLock takes a lock, and hands it over to a waiter. others are the findings so far.
func tryLock(ctx context.Context, s *store.Store, others []finding) finding {
	if s.Replica { // it would be asked again and again
		return finding{Check: "lock", Level: fail, Text: "not tried on a replica", Advice: "see replication above"}
	}
	taken, handed, err := handOver(ctx, s.Driver, s.Form == nil)
	if err != nil {
		return finding{Check: "lock", Level: fail, Text: strings.TrimPrefix(err.Error(), "holdfast: "), Advice: "see the lines above"}
	}
	if s.Form != nil { // which has said how waiters find out
		return finding{Check: "lock", Level: fine, Text: fmt.Sprintf("taken in %s, got after a wait %s after the release", show.Brief(taken), show.Brief(handed))}
	}
	return judgeLock(taken, handed, others)
}

// judgeLock says whether a waiter is told of its turn. Only some stores have a line about how
// they tell it.
func judgeLock(taken, handed time.Duration, others []finding) finding {
	f := finding{Check: "lock", Level: fine, Text: fmt.Sprintf("taken in %s, handed over in %s", show.Brief(taken), show.Brief(handed))}
	if handed <= 50*time.Millisecond+2*taken {
		return f
	}
	f.Level, f.Text, f.Advice = warn, f.Text+", as slowly as if waiters were not told", "see whether the disks or the processors of the store are busy"
	for _, other := range others {
		if (other.Check == "publishing" || other.Check == "listening") && other.Level != fine {
			f.Advice = "see " + other.Check + " above"
		}
	}
	return f
}

// handOver measures how long it takes to get a lock that is free, and one that is released
// while it is waited for. Without a queue nobody can see that it is, so it gives the waiter some
// time. It closes d.
func handOver(ctx context.Context, d driver.Driver, queue bool) (taken, handed time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	// Strictly, so that the waiter waits in the store, as if it were another process.
	locks := holdfast.Open(d, holdfast.WithStrictFIFO(), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	defer store.CloseClient(locks)
	mu := locks.Mutex("holdfast-doctor-" + strings.ToLower(rand.Text()[:8]))
	start := time.Now()
	first, err := mu.Lease(ctx)
	if err != nil {
		return 0, 0, err
	}
	taken = time.Since(start)
	type result struct {
		lease *holdfast.Lease
		at    time.Time
		err   error
	}
	second := make(chan result, 1)
	go func() {
		l, err := mu.Lease(ctx)
		second <- result{l, time.Now(), err}
	}()
	for queued := false; !queued && err == nil; clock.Pause(ctx, 20*time.Millisecond) {
		var info holdfast.Info
		info, err = mu.Inspect(ctx)
		queued = len(info.Queue) > 0 || !queue && time.Since(start) > taken+300*time.Millisecond
	}
	released := time.Now()
	err = errors.Join(err, first.Release(ctx))
	r := <-second
	if err = errors.Join(err, r.err); err != nil {
		return 0, 0, err
	}
	return taken, r.at.Sub(released), r.lease.Release(ctx)
}

func writeFindings(w io.Writer, name string, findings []finding, asJSON bool) error {
	if asJSON {
		for _, f := range findings {
			if err := json.NewEncoder(w).Encode(f); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Fprintln(w, name)
	node, counts, width := "", map[level]int{}, 0
	for _, f := range findings {
		width = max(width, len(f.Check))
	}
	for _, f := range findings {
		if f.Node != node {
			node = f.Node
			fmt.Fprintln(w, node)
		}
		counts[f.Level]++
		indent := strings.Repeat(" ", 8+width)
		fmt.Fprintf(w, "%-4s  %-*s  %s\n", f.Level, width, f.Check, folded(f.Text, indent))
		if f.Advice != "" {
			fmt.Fprintf(w, "%s%s\n", indent, folded("-> "+f.Advice, indent+"   "))
		}
	}
	_, err := fmt.Fprintf(w, "%s, %s\n", show.Plural(counts[fail], "failure", "failures"), show.Plural(counts[warn], "warning", "warnings"))
	return err
}

// folded breaks text into lines that are no longer than 80 columns with the indent that they
// have from the second on.
func folded(text, indent string) string {
	var b strings.Builder
	column := len(indent)
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > 80:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

// latency returns the least and the median time of a question.
func latency(ask func() error) (least, median time.Duration, err error) {
	const times = 21
	var all []time.Duration
	for range times {
		start := time.Now()
		if err := ask(); err != nil {
			return 0, 0, err
		}
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return all[0], all[times/2], nil
}

// judgeLatency says whether a store answers as fast as locks should be.
func judgeLatency(median time.Duration) finding {
	f := finding{Check: "latency", Level: fine, Text: show.Brief(median) + " for a question and its answer"}
	if median > 50*time.Millisecond {
		f.Level, f.Advice = warn, "keep locks on a server that is nearer"
	}
	return f
}

// judgeClock says what it means that the clock of a store shows another time than ours.
func judgeClock(offset, uncertain time.Duration) finding {
	f := finding{Check: "clock", Level: fine, Text: fmt.Sprintf("%s from the clock here, give or take %s", show.Brief(offset.Abs()), show.Brief(uncertain))}
	if offset.Abs() > time.Second+uncertain {
		f.Level = warn
		f.Text += ": locks do not need the time of clients, but the times that are shown are wrong, and servers that replace each other need the same time"
		f.Advice = "run NTP on both"
	}
	return f
}
