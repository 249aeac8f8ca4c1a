package main

const etcd = "driver/etcd/etcdtest"

// What drivers are held to, and etcd.
var etcdMutants = []mutant{
	{
		name: "drivertest-request-cut-short",
		bug:  "A token whose request the store has ended, a moment before its context, is left in the queue, and all wait for it.",
		file: "driver/drivertest/hammer.go",
		old:  "wait.Err() != nil || errors.Is(err, driver.ErrTransient);", new: "wait.Err() != nil;",
		tests: []tests{{unit, "driver/drivertest", "TestTokenGivesUpThoughTheStoreEndsItsRequestFirst"}},
	},
	{
		name: "etcd-thief-behind-the-queue",
		bug:  "A thief comes after those that wait.",
		file: "driver/etcd/steal.go",
		old:  "own.Place, own.Fences = last.place(), 1", new: "own.Fences = 1",
		tests: []tests{{unit, etcd, "TestCrowdOfReadersIsStolenFromInOneTransaction"}},
	},
	{
		name: "etcd-thief-does-not-see-who-left",
		bug:  "A thief takes the place of a holder that has left, though a waiter holds the lock by now.",
		file: "driver/etcd/steal.go",
		old:  "len(holders) > 0 {\n\t\tsame", new: "len(holders) > 1<<20 {\n\t\tsame",
		tests: []tests{{unit, etcd, "TestLockThatChangesHandsBeforeItIsStolenIsStolenFromTheNextHolder"}},
	},
	{
		name: "etcd-thief-revokes-the-lease-of-another-claim",
		bug:  "A thief revokes the lease of a holder that has left by itself, and the lease serves another claim.",
		file: "driver/etcd/steal.go",
		old:  "Deleted > 0", new: "Deleted >= 0",
		tests: []tests{{unit, etcd, "TestThiefLeavesTheLeaseAloneOfAReaderThatHasLeft"}},
	},
	{
		name: "etcd-steals-twice",
		bug:  "A thief whose lease has ended steals once more.",
		file: "driver/etcd/steal.go",
		old:  "bury(l.dead+r.Token, \"\"), ", new: "",
		tests: []tests{{contract, etcd, under("TestConformance/#00/", "StealIsNotRepeatedWhenItsLeaseIsOver")}},
	},
	{
		name: "etcd-thief-unnamed",
		bug:  "A holder does not hear who has the lock now.",
		file: "driver/etcd/wait.go",
		old:  "Status: driver.Lost, Holder: thief", new: "Status: driver.Lost",
		tests: []tests{{contract, etcd, under("TestConformance/#00/", "StealTellsTheHolderWhoHasIt")}},
	},
	{
		name: "etcd-change-undoes-another",
		bug:  "A claim is rewritten though it has changed: a tag undoes an extension.",
		file: "driver/etcd/claim.go",
		old:  `If(append(also, clientv3.Compare(clientv3.ModRevision(c.key), "=", c.changed))...).`, new: "If(also...).",
		tests: []tests{{unit, etcd, "TestTagAndExtensionKeepEachOther"}},
	},
	{
		name: "etcd-tag-said-again",
		bug:  "A tag that was said is said with each renewal again.",
		file: "driver/etcd/renew.go",
		old:  "t == nil || t.said != l.HolderTag", new: "t == nil || true",
		tests: []tests{{unit, etcd, "TestTagIsWrittenOnce"}},
	},
	{
		name: "etcd-waiter-not-told-the-tag",
		bug:  "A waiter is not told what the holder says.",
		file: "driver/etcd/queue.go",
		old:  "Status: s, HolderTag: q.tag(), Behind", new: "Status: s, Behind",
		tests: []tests{{unit, etcd, "TestWaitersAreToldTheTagOfTheHolder"}},
	},
	{
		name: "etcd-waiter-told-of-the-holder-though-others-are-in-the-way",
		bug:  "A reader that a waiting writer keeps out is told of the reader that holds the lock.",
		file: "driver/etcd/queue.go",
		old:  "if len(holders) > 0 && !g.Behind", new: "if len(holders) > 0",
		tests: []tests{{contract, etcd, under("TestConformance/#00/", "ReaderTurnedAwayByAWaitingWriterIsNotToldOfAReader")}},
	},
}
