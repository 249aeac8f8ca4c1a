package main

import "strings"

// under returns subtests of a test.
func under(test, names string) string {
	return test + strings.Join(strings.Fields(names), " "+test)
}

const rlk = "driver/redlock"

// A majority of servers.
var redlockMutants = []mutant{
	{
		name: "redlock-half-is-enough",
		bug:  "One vote less than a majority is enough.",
		file: "driver/redlock/redlock.go",
		old:  "return len(d.nodes)/2 + 1", new: "return len(d.nodes) / 2",
		tests: []tests{{unit, rlk, "TestWonIfAndOnlyIfAMajorityIsFree"}},
	},
	{
		name: "redlock-fence-not-written-back",
		bug:  "The largest fence of a majority is handed out without writing it back, so the next majority gives a smaller one.",
		file: "driver/redlock/fence.go",
		old:  "if t.agreed {", new: "if true {",
		tests: []tests{{unit, rlk, "TestFencesIncreaseThoughMajoritiesDiffer"}},
	},
	{
		name: "redlock-trust-from-the-newest-vote", of: "rule 1",
		bug:  "A grant names the newest ask of its majority, not the oldest.",
		file: "driver/redlock/ballot.go",
		old:  "t.agreed, t.fence, t.ask = true, fence, v.ask", new: "t.agreed, t.fence, t.ask = true, fence, votes[0].ask",
		tests: []tests{{unit, rlk, "TestGrantRestsOnTheOldestAskOfItsMajority"}},
	},
	{
		name: "redlock-old-votes-count",
		bug:  "A vote counts although the lease that it gave has ended.",
		file: "driver/redlock/ballot.go",
		old:  "now.Before(at.Add(ttl-margin(ttl)))", new: "now.Before(at.Add(time.Hour+ttl))",
		tests: []tests{{unit, rlk, "TestVotesDoNotOutliveTheTTLOfTheirAsk"}},
	},
	{
		name: "redlock-spoiled-vote-renews", of: "B2",
		bug:  "A vote that is being given back counts in a renewal.",
		file: "driver/redlock/renew.go",
		old:  "return d.vouched(n, batch, func() []error { return n.Renew(ctx, batch) }), nil", new: "return n.Renew(ctx, batch), nil",
		tests: []tests{{unit, rlk, "TestVoteThatIsBeingGivenBackMakesNoMajority"}},
	},
	{
		name: "redlock-word-of-a-restarted-node", of: "B3",
		bug:  "A node that was restarted, and whose clock was set forward, counts as old.",
		file: "driver/redlock/age.go",
		old:  "return votes - min(claims, len(d.nodes)-d.majority())", new: "return votes",
		tests: []tests{{unit, rlk, "TestNodeWhoseClockIsSetAfterARestartElectsNobody TestVotesSufficeIfAndOnlyIfNoForgetfulMinorityCanHaveElectedAnother"}},
	},
	{
		name: "redlock-young-nodes-vote",
		bug:  "A node votes although it may have forgotten an earlier vote in a restart.",
		file: "driver/redlock/age.go",
		old:  "case time.Now().Before(a.claimed):", new: "case false:",
		tests: []tests{{unit, rlk, "TestYoungNodesDoNotCount"}},
	},
	{
		name: "redlock-split-votes-kept",
		bug:  "Waiters that share the votes keep them, so that nobody has a majority.",
		file: "driver/redlock/wait.go",
		old:  "b.timer = time.AfterFunc(b.patience(first), ", new: "b.timer = time.AfterFunc(time.Hour, ",
		tests: []tests{{unit, rlk, "TestSplitVotesAreGivenBack"}},
	},
	{
		name: "redlock-release-never-unsettled", of: "rule 5",
		bug:  "A release does not tell a node that an ask may still reach it.",
		file: "driver/redlock/release.go",
		old:  "l.Unsettled = l.Unsettled || b.unsettled(n)", new: "l.Unsettled = false",
		tests: []tests{{unit, rlk, "TestLateAskAcquiresNothing"}},
	},
	{
		name: "redlock-unanswered-release-forgotten",
		bug:  "A vote is kept for its TTL if the answer to its release is lost.",
		file: "driver/redlock/wait.go",
		old:  "if executed && !answered(err) {", new: "if false {",
		tests: []tests{{unit, rlk, "TestVoteIsGivenBackAgainIfNobodyHasHeardOfIt"}},
	},
}

// What refuses late writes.
var fenceMutants = []mutant{
	{
		name: "fence-never-stale",
		bug:  "No fence is older than one that was seen.",
		file: "fence/fence.go",
		old:  "if f.Number >= seen {", new: "if f.Number > 0 {",
		tests: []tests{{unit, "fence/httpfence", "TestServerRefusesStaleRequests"}},
	},
	{
		name: "fence-http-remembers-readers",
		bug:  "A reader shuts out the readers beside it that have smaller fences.",
		file: "fence/httpfence/httpfence.go",
		old:  "if !f.Shared {\n\t\t\tm.seen", new: "if true {\n\t\t\tm.seen",
		tests: []tests{{unit, "fence/httpfence", "TestReadersAreStaleOnlyAfterALaterWriterAndPermitsNever"}},
	},
	{
		name: "fence-http-any-number",
		bug:  "A header may have a fence of 0, which no lease has.",
		file: "fence/httpfence/httpfence.go",
		old:  "case f.Number < 1:", new: "case false:",
		tests: []tests{{unit, "fence/httpfence", "TestMalformedHeaderIsRefused FuzzHeader"}},
	},
	{
		name: "fence-redis-compares-texts",
		bug:  "Redis compares fences as texts, so 9 is newer than 10.",
		file: "fence/redisfence/guard.lua",
		old:  "tonumber(ARGV[2 * i]) < tonumber(seen)", new: "ARGV[2 * i] < seen",
		tests: []tests{{unit, "fence/redisfence", "TestFencesAreComparedAsNumbers"}},
	},
	{
		name: "fence-redis-records-what-it-refuses",
		bug:  "A command with two leases, one of them stale, records the fence of the other.",
		file: "fence/redisfence/guard.lua",
		old:  "  end\nend\nfor i = 1, n do\n", new: "  end\n",
		tests: []tests{{unit, "fence/redisfence", "TestAllLeasesOfAContextAreChecked TestRefusedTransactionDoesNothing"}},
	},
	{
		name: "fence-sql-commits-what-it-refuses",
		bug:  "A transaction whose check has failed can be committed.",
		file: "fence/sqlfence/tx.go",
		old:  "if failed := t.failed; failed != nil {", new: "if failed := t.failed; false {",
		tests: []tests{{unit, "fence/sqlfence/sqltest", "TestRefusedTransactionCannotBeCommitted/sqlite"}},
	},
	{
		name: "guard-lets-pipelines-through",
		bug:  "GuardHook lets the pipelines of a lost lease through.",
		file: "internal/redishook/redishook.go",
		old:  "if err == nil {\n\t\t\treturn next(ctx, cmds)", new: "if true {\n\t\t\treturn next(ctx, cmds)",
		tests: []tests{{unit, "internal/redishook", "TestGuardRefusesCommandsOfALeaseThatIsOver"}},
	},
}
