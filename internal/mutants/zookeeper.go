package main

const zookeeper = "driver/zookeeper"

// Sessions of ZooKeeper, and the claims in them.
var zookeeperMutants = []mutant{
	{
		name: "zookeeper-renewal-without-handshake",
		bug:  "A renewal counts though the leader did not count the session anew.",
		file: "driver/zookeeper/session.go",
		old:  "case s.state == up && !s.link.began.Add(s.timeout).Before(until):", new: "case s.state == up:\n\t\t\ts.link.began = time.Now()",
		tests: []tests{{unit, zookeeper, "TestRenewalTakesAHandshake"}},
	},
	{
		name: "zookeeper-renewal-without-write",
		bug:  "A handshake counts though no write has shown that the leader was not replaced.",
		file: "driver/zookeeper/renew.go",
		old:  "gone, err = d.check(ctx, s, claims)", new: "s.prove(s.link)",
		tests: []tests{{unit, zookeeper, "TestRenewalTakesAWriteAfterTheHandshake"}},
	},
	{
		name: "zookeeper-release-fails-with-its-connection",
		bug:  "A call fails whose connection the driver itself gives up, to renew its session.",
		file: "driver/zookeeper/session.go",
		old:  "|| try == lastTry {", new: "|| try == 0 {",
		tests: []tests{{unit, zookeeper, "TestLostConnectionFailsNoCall"}},
	},
	{
		name: "zookeeper-two-claims-of-one-token",
		bug:  "A second claim of a token, made by a repeat, stays in the queue.",
		file: "driver/zookeeper/zookeeper.go",
		old:  "c != nil && len(all) > 1 {", new: "c != nil && len(all) > 99 {",
		tests: []tests{{unit, zookeeper, "TestSecondClaimOfATokenGoes"}},
	},
	{
		name: "zookeeper-shorter-session-accepted",
		bug:  "A lease is granted for longer than the server keeps sessions.",
		file: "driver/zookeeper/session.go",
		old:  "case s.state == up && s.timeout < s.wants:", new: "case s.state == up && s.timeout < 0:",
		tests: []tests{{unit, zookeeper, "TestTTLThatTheServerDoesNotKeepIsRefused"}},
	},
	{
		name: "zookeeper-renewal-of-a-stranger-ends-with-close",
		bug:  "A lease that holdfast renew has renewed ends with that command.",
		file: "driver/zookeeper/zookeeper.go",
		old:  "stays[s] = time.Now().Before(s.carries)", new: "stays[s] = false",
		tests: []tests{{unit, zookeeper, "TestConformance/.*/CloseLeavesWhatAStrangerRenewed"}},
	},
}
