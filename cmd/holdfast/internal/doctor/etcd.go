package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// examineEtcd asks each member that the URL names about itself.
func examineEtcd(ctx context.Context, client *clientv3.Client, prefix string) []finding {
	var findings []finding
	for _, endpoint := range client.Endpoints() {
		asking, cancel := context.WithTimeout(ctx, 3*time.Second)
		status, err := client.Status(asking, endpoint)
		cancel()
		of := func(f finding) {
			f.Node = "member " + endpoint
			findings = append(findings, f)
		}
		if err != nil {
			of(judgeStatus(err))
			continue
		}
		of(judgeEtcd(status.Version))
		leader := finding{Check: "leader", Level: fine, Text: fmt.Sprintf("%x", status.Leader)}
		if status.Leader == status.Header.MemberId {
			leader.Text = "this member"
		}
		if status.Leader == 0 {
			leader.Level, leader.Text, leader.Advice = fail, "none: no lock is granted or renewed", "start members until a majority is up"
		}
		of(leader)
		for _, trouble := range status.Errors {
			of(finding{Check: "alarm", Level: fail, Text: trouble, Advice: "see etcdctl alarm list; after NOSPACE: compact, defrag, alarm disarm"})
		}
	}
	all := func(f finding) {
		f.Node = "all"
		findings = append(findings, f)
	}
	members, err := client.MemberList(ctx)
	if err != nil {
		all(finding{Check: "members", Level: warn, Text: "cannot tell: " + err.Error(), Advice: "make sure that 3 or 5 vote"})
	} else {
		voters := 0
		for _, m := range members.Members {
			if !m.IsLearner {
				voters++
			}
		}
		f := finding{Check: "members", Level: fine, Text: fmt.Sprintf("%d vote: locks go on while %d of them are up", voters, voters/2+1)}
		if voters < 3 {
			f.Level, f.Advice = warn, "have 3 or 5 members, so that locks survive the loss of one"
		}
		all(f)
	}
	_, median, err := latency(func() error {
		_, err := client.Get(ctx, prefix+"/lock/", clientv3.WithCountOnly()) // below what the user may read
		return err
	})
	if err != nil {
		all(finding{Check: "latency", Level: warn, Text: "cannot tell: " + err.Error()})
	} else {
		all(judgeLatency(median))
	}
	return findings
}

// judgeStatus says what it means that a member does not tell about itself.
func judgeStatus(err error) finding {
	f := finding{Check: "version", Level: warn, Text: "no answer: " + err.Error(), Advice: "start the member, or leave it out of the URL"}
	if refusal, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		f.Text, f.Advice = "cannot tell version, leader and alarms: "+refusal.Error(), "run the doctor as a user that the member answers"
	}
	return f
}

// judgeEtcd says whether leases that are alive outlive a change of leader: before these
// versions, a leader that was replaced can revoke them.
func judgeEtcd(version string) finding {
	f := finding{Check: "version", Level: fine, Text: "etcd " + version}
	var major, minor, patch int
	_, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch)
	switch {
	case err != nil:
		f.Level, f.Text, f.Advice = warn, fmt.Sprintf("cannot tell: %q", version), "make sure that it is etcd 3.5.13 or later"
	case major > 3 || minor > 5 || minor == 5 && patch >= 13 || minor == 4 && patch >= 31:
	default:
		f.Level, f.Text, f.Advice = fail, f.Text+": a leader that was replaced can revoke leases that are alive (etcd #15247)", "use etcd 3.5.13 or later, or 3.4.31"
	}
	return f
}
