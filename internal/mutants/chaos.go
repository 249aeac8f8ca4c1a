package main

// rig is the tests of what judges histories; they start no server.
const rig = "internal/chaos"

// What the judges of internal/chaos must see. A judge that is blind proves nothing.
var chaosMutants = []mutant{
	{
		name: "judge-excuses-every-holder-of-a-stolen-lock",
		bug:  "Everybody counts as robbed who holds a lock that was ever stolen.",
		file: rig + "/theft.go",
		old:  "if thief.fence > o.fence {", new: "if true {",
		tests: []tests{{unit, rig, "TestVictimAndThiefMayBelieveAtOnceAndNobodyElse TestTheftExcusesOnlyWhatCameBeforeIt"}},
	},
	{
		name: "judge-excuses-robbed-holders-from-the-beginning",
		bug:  "A holder that was robbed never counts, not even before the theft.",
		file: rig + "/verdict.go",
		old:  "return min(o.believed, o.robbed)", new: "return 0",
		tests: []tests{{unit, rig, "TestVictimAndThiefMayBelieveAtOnceAndNobodyElse"}},
	},
	{
		name: "judge-excuses-for-ever-what-a-lost-thief-may-have-done",
		bug:  "A theft that nobody confirmed excuses whatever comes later.",
		file: rig + "/theft.go",
		old:  "if o.returned < thief.over()+mayCome {", new: "if true {",
		tests: []tests{{unit, rig, "TestTheftThatNobodyConfirmedMayHaveHappenedUntilItsMessagesAreGone"}},
	},
	{
		name: "judge-of-the-deaf-is-deaf",
		bug:  "A victim may believe for as long as it likes.",
		file: rig + "/theft.go",
		old:  "case late > ttl &&", new: "case late > time.Hour &&",
		tests: []tests{{unit, rig, "TestVictimBelievesNoLongerThanItsLease"}},
	},
	{
		name: "judge-believes-any-name-of-a-thief",
		bug:  "A victim may name one that has stolen the lock before, or will.",
		file: rig + "/theft.go",
		old:  "(!thief.granted() || thief.fence > o.fence)", new: "true",
		tests: []tests{{unit, rig, "TestVictimNamesAThiefOfItsLock"}},
	},
	{
		name: "judge-lets-victims-overtake",
		bug:  "Nobody overtakes in a lock that is stolen.",
		file: rig + "/order.go",
		old:  "return !o.theft() && q.since(w)", new: "return o.mode == \"\" && q.since(w)",
		tests: []tests{{unit, rig, "TestThievesComeBeforeWaitersAndNobodyElseDoes"}},
	},
	{
		name: "judge-of-histories-forgets-who-was-robbed-by-whom",
		bug:  "For porcupine a theft ends the holds that come after it, too.",
		file: rig + "/linear.go",
		old:  "case !s.grants && s.o.fence < h.floor:", new: "case !s.grants && h.floor > 0:",
		tests: []tests{{unit, rig, "TestVictimAndThiefMayBelieveAtOnceAndNobodyElse"}},
	},
	{
		name: "judge-of-the-wanted-hears-nothing",
		bug:  "A holder need not hear of a waiter.",
		file: rig + "/bounds.go",
		old:  "case heard > since+int64(hearing):", new: "case heard > since+int64(9*hearing):",
		tests: []tests{{unit, rig, "TestHolderHearsOfAWaiterInTime"}},
	},
	{
		name: "judge-of-ticks-counts-from-the-answer",
		bug:  "MinHold may be shorter by the time that the grant took.",
		file: rig + "/bounds.go",
		old:  "next.returned < o.invoked+int64(minHold)", new: "next.returned < o.invoked+int64(minHold)/2",
		tests: []tests{{unit, rig, "TestNextGrantComesNotBeforeMinHold"}},
	},
	{
		name: "judge-of-crowds-counts-to-more",
		bug:  "One more may wait than WithMaxWaiters allows.",
		file: rig + "/bounds.go",
		old:  "if n > maxWaiters {", new: "if n > maxWaiters+1 {",
		tests: []tests{{unit, rig, "TestNoMoreWaitThanMaxWaitersAllows"}},
	},
	{
		name: "last-look-of-the-killed-is-forgotten",
		bug:  "What a holder believed that was killed does not count.",
		file: rig + "/history.go",
		old:  "o.granted() && o.gives == 0 && at > o.returned", new: "o.granted() && o.gives != 0 && at > o.returned",
		tests: []tests{{unit, rig, "TestHistoryOfAKilledProcessIsRead"}},
	},
	{
		name: "slices-of-other-code-add-up",
		bug:  "Slices count that were run with other scripts or another engine.",
		file: rig + "/slice.go",
		old:  "case s.Hash != hash:", new: "case s.Hash == \"\":",
		tests: []tests{{unit, rig, "TestSlicesOfOneHashAddUp"}},
	},
	{
		name: "void-slice-hides-a-broken-promise",
		bug:  "A slice that says nothing is dropped although a promise was broken in it.",
		file: rig + "/slice.go",
		old:  "case len(s.Void) > 0 && len(s.Broken) == 0:", new: "case len(s.Void) > 0:",
		tests: []tests{{unit, rig, "TestSlicesOfOneHashAddUp"}},
	},
}
