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
		name: "redlock-numbers-of-one-vote",
		bug:  "A holder uses as many fences as it asked for, whether a majority has reserved them or not.",
		file: "driver/redlock/ballot.go",
		old:  "t.fences = min(t.fences, v.fence+v.fences-t.fence)", new: "_ = v",
		tests: []tests{{unit, rlk, "TestFenceIsOneThatAMajorityHasReserved TestNodesReachedAtDifferentTimesHaveAFenceInCommon"}},
	},
	{
		name: "redlock-fence-of-a-minority",
		bug:  "A fence is handed out that too few nodes have reserved.",
		file: "driver/redlock/ballot.go",
		old:  "if !v.has(fence) {\n\t\t\tcontinue\n\t\t}\n", new: "",
		tests: []tests{{unit, rlk, "TestFenceIsOneThatAMajorityHasReserved TestFencesIncreaseThoughMajoritiesDiffer"}},
	},
	{
		name: "redlock-told-fence-goes-back",
		bug:  "The fence that was told is forgotten when one node more answers.",
		file: "driver/redlock/ballot.go",
		old:  "ok { // it was told", new: "ok && false {",
		tests: []tests{{unit, rlk, "TestFenceThatWasToldDoesNotGoBack"}},
	},
	{
		name: "redlock-second-trip-for-each-fence",
		bug:  "Nodes reserve one fence each, so no two have one in common.",
		file: "driver/redlock/ballot.go",
		old:  "r.Fences = max(r.Fences, n.reserve())", new: "_ = reserve",
		tests: []tests{{unit, rlk, "TestNodesReachedAtDifferentTimesHaveAFenceInCommon"}},
	},
	{
		name: "redlock-trust-from-the-newest-vote", of: "rule 1",
		bug:  "A grant names the newest ask of its majority, not the oldest.",
		file: "driver/redlock/ballot.go",
		old:  "return v.ask, true", new: "return votes[0].ask, true",
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
		name: "redlock-close-drops-releases",
		bug:  "Close does not wait for the releases that Release has not waited for, so a vote is left for its TTL.",
		file: "driver/redlock/redlock.go",
		old:  "n.drain()", new: "_ = n",
		tests: []tests{{unit, rlk, "TestCloseWaitsForReleasesThatWereLeftBehind"}},
	},
	{
		name: "redlock-ask-overtakes-release",
		bug:  "An ask overtakes a release that its caller has not waited for, so a free node does not vote.",
		file: "driver/redlock/round.go",
		old:  "\t\t\tc.wait()\n", new: "",
		tests: []tests{{unit, rlk, "TestAskComesAfterTheReleaseThatWasLeftBehind"}},
	},
	{
		name: "redlock-later-vote-takes-fences",
		bug:  "A repeat tells fewer fences than the answer before, since one more node has voted.",
		file: "driver/redlock/ballot.go",
		old:  "if !b.won || b.fence != t.fence {", new: "if true {",
		tests: []tests{{unit, rlk, "TestFencesThatWereToldAreToldAgain"}},
	},
	{
		name: "redlock-late-vote-stays",
		bug:  "A vote that comes after the fence was told is not raised, so Inspect shows another fence.",
		file: "driver/redlock/fence.go",
		old:  "late := v.late", new: "late := false",
		tests: []tests{{unit, rlk, "TestInspectShowsTheFenceThatWasTold"}},
	},
	{
		name: "redlock-late-larger-vote-stays",
		bug:  "A vote of the first node that comes late and begins with a larger fence than the told one is not moved beyond those of the others.",
		file: "driver/redlock/fence.go",
		old:  "if v.fence > b.fence {", new: "if false {",
		tests: []tests{{unit, rlk, "TestInspectShowsTheFenceThatWasTold"}},
	},
	{
		name: "redlock-told-too-early",
		bug:  "A fence is told though the vote that is missing may give the first node's a majority.",
		file: "driver/redlock/ballot.go",
		old:  "t.firm || missing == silent", new: "b.votes[0].err != errUnheard || missing == silent",
		tests: []tests{{unit, rlk, "TestInspectShowsTheFenceThatWasTold"}},
	},
	{
		name:  "redlock-inspects-by-the-smallest",
		bug:   "Inspect shows the smallest fence that a majority has.",
		file:  "driver/redlock/native.go",
		old:   "for _, h := range seen {",
		new:   "for _, h := range slices.SortedFunc(slices.Values(seen), func(a, b driver.Holder) int { return cmp.Compare(a.Fence, b.Fence) }) {",
		tests: []tests{{unit, rlk, "TestInspectShowsTheFenceThatWasTold"}},
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
		name: "fence-sql-looks-without-a-lock",
		bug:  "A transaction does not share the row of its fence, so the next holder does not wait for it.",
		file: "fence/sqlfence/dialect.go",
		old:  "WHERE name = $1 FOR SHARE`", new: "WHERE name = $1`",
		tests: []tests{{unit, "fence/sqlfence/sqltest", "TestHistoryIsThatOfTheHoldersInTheOrderOfTheirFences/postgres"}},
	},
	{
		name: "fence-sql-believes-its-memory",
		bug:  "A fence that was recorded once is not compared again.",
		file: "fence/sqlfence/tx.go",
		old:  "if err != nil || found && seen == f.Number {\n\t\t\treturn err", new: "if err != nil || found || seen >= 0 {\n\t\t\treturn nil",
		tests: []tests{{unit, "fence/sqlfence/sqltest", "TestHistoryIsThatOfTheHoldersInTheOrderOfTheirFences/sqlite"}},
	},
	{
		name: "fence-sql-believes-in-select",
		bug:  "A SELECT that calls a function that writes is not checked again before its commit.",
		file: "fence/sqlfence/tx.go",
		old:  "if err != nil || wrote == 0 {", new: "if err != nil || wrote >= 0 {",
		tests: []tests{{unit, "fence/sqlfence/sqltest", "TestQueryThatOnlySeemsToReadIsConfirmed"}},
	},
	{
		name: "fence-sql-trusts-a-transaction-that-failed",
		bug:  "Where the database has ended the transaction by itself, its next statements are written unchecked.",
		file: "fence/sqlfence/tx.go",
		old:  "if !t.doubtful {", new: "if true {",
		tests: []tests{{unit, "fence/sqlfence/sqltest", "TestTransactionThatTheDatabaseEndedWritesNothingMore/sqlite"}},
	},
	{
		name: "postgres-believes-an-unconfirmed-commit",
		bug:  "An answer is believed although the wait for the standby was cancelled.",
		file: "driver/postgres/calls.go",
		old:  "case lone:", new: "case lone && false:",
		tests: []tests{{unit, "driver/postgres", "TestNothingThatNoStandbyConfirmedIsTrusted"}},
	},
	{
		name: "postgres-tells-of-unconfirmed-grants",
		bug:  "With synchronous replication a waiter is told that it has the lock, by a session that may not have waited.",
		file: "driver/postgres/sql/tell.sql",
		old:  "RETURN current_setting('synchronous_standby_names') <> '';", new: "RETURN false;",
		tests: []tests{{unit, "driver/postgres", "TestNothingThatNoStandbyConfirmedIsTrusted"}},
	},
	{
		name: "postgres-leaves-warnings-off",
		bug:  "Where warnings are off, nobody hears that the wait for the standby was cancelled.",
		file: "driver/postgres/sql/open.sql",
		old:  "IF current_setting('client_min_messages') = 'error' THEN", new: "IF false THEN",
		tests: []tests{{unit, "driver/postgres", "TestNothingThatNoStandbyConfirmedIsTrusted"}},
	},
	{
		name: "fence-sql-records-in-the-transaction",
		bug:  "The fence is recorded in the transaction, and the holder's other connections wait for it.",
		file: "fence/sqlfence/conn.go",
		old:  "if err := c.settle(ctx, fences); err != nil {\n\t\treturn nil, err", new: "if err := error(nil); err != nil {\n\t\treturn nil, err",
		tests: []tests{{unit, "fence/sqlfence", "TestCheckIsTheFirstStatementOfATransaction"}},
	},
	{
		name: "fence-redis-does-not-repeat-a-pipeline",
		bug:  "What was not carried out for want of the script is not repeated.",
		file: "fence/redisfence/redisfence.go",
		old:  "again = append(again, cmd)", new: "again = nil",
		tests: []tests{{unit, "fence/redisfence", "TestClusterPipelineDoesNotDependOnItsFirstCommand"}},
	},
	{
		name: "guard-lets-pipelines-through",
		bug:  "GuardHook lets the pipelines of a lost lease through.",
		file: "internal/redishook/redishook.go",
		old:  "if err == nil {\n\t\t\treturn next(ctx, cmds)", new: "if true {\n\t\t\treturn next(ctx, cmds)",
		tests: []tests{{unit, "internal/redishook", "TestGuardRefusesCommandsOfALeaseThatIsOver"}},
	},
}
