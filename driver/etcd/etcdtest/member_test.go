package etcdtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func init() { crew.Register("member", runMember) }

// runMember is a member of a cluster, in a process of its own so that it can be killed and
// paused.
func runMember() {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = os.Getenv("MEMBER"), os.Getenv("MEMBER_DIR")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	client, peer := []url.URL{{Scheme: "http", Host: os.Getenv("MEMBER_CLIENT")}}, []url.URL{{Scheme: "http", Host: os.Getenv("MEMBER_PEER")}}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = client, client
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peer, peer
	cfg.InitialCluster = os.Getenv("MEMBERS")
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	<-e.Server.ReadyNotify()
	crew.Report("ready")
	crew.Order[string]() // until the test ends
}

// member is one of a cluster. It can be killed and started again.
type member struct {
	*crew.Process
	tb       testing.TB
	env      []string
	endpoint string
}

// cluster starts n members.
func cluster(tb testing.TB, n int) []*member {
	tb.Helper()
	members := start(tb, n)
	for _, m := range members {
		require.True(tb, m.isReady(), "a member has ended")
	}
	return members
}

func start(tb testing.TB, n int) []*member {
	tb.Helper()
	dir := tb.TempDir()
	members := make([]*member, n)
	var all []string
	for i := range members {
		name, client, peer := fmt.Sprint("m", i), redistest.FreeAddr(tb), redistest.FreeAddr(tb)
		members[i] = &member{tb: tb, endpoint: client, env: []string{
			"MEMBER=" + name, "MEMBER_DIR=" + filepath.Join(dir, name), "MEMBER_CLIENT=" + client, "MEMBER_PEER=" + peer,
		}}
		all = append(all, name+"=http://"+peer)
	}
	for _, m := range members {
		m.env = append(m.env, "MEMBERS="+strings.Join(all, ","))
		m.Process = crew.Start(tb, "member", m.env...)
	}
	return members
}

// isReady waits until the member serves, or has ended.
func (m *member) isReady() bool {
	m.tb.Helper()
	_, err := crew.Listen[string](m.Process, time.After(time.Minute))
	require.NotErrorIs(m.tb, err, crew.ErrSilent, "the member does not start")
	return err == nil
}

// Restart starts a member that was killed.
func (m *member) Restart() {
	m.tb.Helper()
	m.Process = crew.Start(m.tb, "member", m.env...)
	require.True(m.tb, m.isReady(), "the member has ended")
}

func endpoints(members []*member) (all []string) {
	for _, m := range members {
		all = append(all, m.endpoint)
	}
	return all
}

// leader finds the leader among members of which one at least answers.
func leader(tb testing.TB, members []*member) *member {
	tb.Helper()
	var found *member
	require.Eventually(tb, func() bool {
		for _, m := range members {
			client := connect(tb, m.endpoint)
			ctx, cancel := context.WithTimeout(tb.Context(), time.Second)
			s, err := client.Status(ctx, m.endpoint)
			cancel()
			_ = client.Close()
			if err == nil && s.Leader == s.Header.MemberId {
				found = m
				return true
			}
		}
		return false
	}, patience, 100*time.Millisecond)
	return found
}
