// Package behavior says where the promises of package holdfast are tested. The tests stand
// in the packages below it, by what they are about; what is true of one package only is
// tested beside that package. Their fixtures are package lab. [Run] is for drivers.
//
// A test holds this index to what there is: each promise and rule has a test, and each test
// that is named here exists. A name is that of the folder and of the test; holdfast is the
// root. Some need luck or a machine that never stands still: they begin with
// redistest.SoakOnly, and beside each of them is one that is run always.
//
// # Promises
//
// They are numbered in package holdfast.
//
//  1. One holder at a time:
//     exclusion.TestProcessesExcludeEachOtherAndTakeEvenTurns
//     exclusion.TestReadersAndWritersOfFourProcessesNeverMeet
//     exclusion.TestFourProcessesNeverHaveMoreThanTheLimit
//     exclusion.TestRefereeSeesThatNothingIsNoLock
//     holdfast.TestReadersAndWritersNeverMeet
//     holdfast.TestSemaphoreNeverGivesMoreThanItsLimit
//     fault.TestForgedNewsMakesNoHolderAndEndsNoLease
//     fault.TestForgedNewsReachesNoWaiter
//     loss.TestServerClockMayBeWrong
//     loss.TestServerClockStepsBackWhileTheLockIsHeld
//     local.TestEverySchedule
//     simulation.TestEveryPlanIsPlayedAsPromised
//     simulation.TestEveryFrameMayFail
//  2. The dead are in nobody's way for long:
//     loss.TestKilledHolderBlocksNobodyLongerThanItsTTL
//     loss.TestKilledHoldersOfPartsBlockNobodyLongerThanTheirTTL
//     loss.TestKilledWaiterDelaysNobody
//     loss.TestWaiterKilledJustAsItIsGrantedBlocksNobodyLongerThanItsTTL
//     redisdriver.TestLockOfACrashedHolderGoesToWhoBecameNextAtItsEnd
//  3. Waiters are served in order:
//     order.TestProcessesAreServedInOrderOfArrival
//     order.TestNobodyStarvesBesideAStreamOfSmallRequests
//     order.TestCancelledWaitersDelayNobody
//     holdfast.TestReadersAndWritersAreServedInOrder
//     holdfast.TestWaitingWriterHoldsUpNewReaders
//     holdfast.TestLargeAcquireDoesNotStarve
//     local.TestOthersGetTheirTurn
//     local.TestReadersJoinForOneTurnAtMost
//     local.TestStrictFIFOIsTheOrderOfAll
//     fault.TestWaitersAreServedAfter
//     simulation.TestEveryPlanIsPlayedAsPromised
//  4. A holder stops before the next one starts:
//     loss.TestHolderSuspendedBeyondItsTTLStopsAtOnceAndTouchesNobody
//     fault.TestHolderThatIsCutOffStopsBeforeTheStoreLetsAnotherIn
//     fault.TestHolderOnAFrozenServerStopsInTime
//     keepalive.TestTrustEndsInTimeWhileARenewalHangs
//     simulation.TestEveryFrameMayFail
//  5. Fences increase:
//     exclusion.TestProcessesExcludeEachOtherAndTakeEvenTurns
//     redisdriver.TestFencesIncreaseOverALossWhateverWasGivenBefore
//     redisdriver.TestFencesIncreaseOverAFailoverToAnOlderState
//     redisdriver.TestFencesGoOnWhenTheClockIsSetBack
//     redisdriver.TestFencesAreNeverAheadOfTheClock
//     cluster.TestSentinelFailoverThatLosesWrites
//     simulation.TestEveryPlanIsPlayedAsPromised
//  6. Nothing stays behind; besides, every package fails that leaves goroutines, and every
//     lab that leaves keys:
//     release.TestCloseHandsOverAllThatAProcessHas
//     release.TestCloseLeavesNothingOfWhatHasJustBegun
//     redisdriver.TestNothingIsLeftOneMinuteAfterTheLastUse
//     redisdriver.TestResizedLimitIsKeptForAMinuteAfterTheLastUse
//     simulation.TestEveryPlanIsPlayedAsPromised
//
// # What holders and waiters say to each other
//
// Wanted, Steal, All and ErrUnavailable promise what their documentation says:
//
//	holdfast.TestHolderHearsThatAnotherProcessWaits
//	holdfast.TestHolderHearsThatAGoroutineOfItsProcessWaits
//	holdfast.TestQuestionWhetherAnybodyWaitsIsRepeated
//	holdfast.TestHolderThatNeverLooksCostsNothing
//	holdfast.TestStealTakesTheLockAndLeavesTheQueue
//	holdfast.TestStealIsNotRepeatedAgainstTheNextHolder
//	holdfast.TestVictimHearsWhoHasStolenTheLock
//	holdfast.TestAllTakesAllOrNone
//	holdfast.TestAllHoldsNothingBehindALockThatIsTaken
//	exclusion.TestAllOfMixedKindsNeverDeadlocks
//	fault.TestEveryTroubleOfTheStoreIsToldFromAHolder
//	fault.TestOnlyWhatIsKnownToLastEndsAWait
//	fault.TestSecondOfUnknownAnswersMakesNoStormAndKeepsTheOrder
//	fault.TestWrongCertificateIsWaitedOut
//	fault.TestOutageEndsAWaitSoon
//	fault.TestHolderIsWaitedForLongerThanTheStore
//
// # Rules
//
// They are numbered in package redisdriver.
//
//  1. token.TestNewsThatProvesNothingHasTheTokenAsk
//     token.TestPushIsTrustedFromTheAskThatItNames
//     keepalive.TestRenewalProvesTheLeaseFromWhenItWasSent
//  2. redisdriver.TestSilentWaiterIsSkippedAfterTwoThirdsOfItsTTL
//     keepalive.TestGrantThatUsedUpMuchTimeIsRenewedAtOnce
//  3. redisdriver.TestEveryGrantedAnswerGivesTheFullTTLAndGrace
//     redisdriver.TestNothingRevivesAnExpiredLease
//     redisdriver.TestLateAskDoesNotShortenALease
//  4. keepalive.TestTrustEndsByTheWallClockToo
//     keepalive.TestLeaseThatEndsByTheWallClockSaysSo
//     redisdriver.TestServerClockStepsBackWhileReadersHold
//  5. redisdriver.TestNoAskIsRepeatedBehindOurBack
//     redisdriver.TestTombstonesDoNotPileUp
//     token.TestStragglingAskHasTheReleaseRepeated
//     token.TestLostReplyIsAskedForAgain
//     fault.TestStragglingAskTakesNothing
//  6. token.TestTokensAreFreshForEveryAcquisition
//     session.TestTokensOfACopiedProcessDiffer
//     reentry.TestOwnersAreNeverInsideTogether
//     exclusion.TestPartReleaseThatComesLateTakesNothing
//  7. redisdriver.TestWaiterThatSeemsGoneComesBackToItsPlace
//     redisdriver.TestWaiterWithoutSubscriptionIsNotPassedOver
//     redisdriver.TestRefusedPublishUndoesNoGrant
//     cluster.TestWaitersPollWhereScriptsMayNotPublish
//  8. redisdriver.TestLiveWaiterBehindManyDeadOnesIsServedPiecemeal
//     redisdriver.TestForceAndAskServeThoseBehindManyDeadOnes
//  9. redisdriver.TestTryOnlyUsersAreNotBlockedByDeadWaiters
//  10. redisdriver.TestWaiterReturnsToItsPlace
//     redisdriver.TestWhoWasServedHasNoPlace
//     redisdriver.TestPlaceOfAnEarlierLifeOvertakesNobody
//     redisdriver.TestPlacesAreNotReused
//     redisdriver.TestWaiterThatIsRobbedUnheardHasItsPlaceAgain
//  11. redisdriver.TestNobodyShortensTheLifeOfTheKey
//     redisdriver.TestFullMemoryStopsNobodyWhoIsThere
//  12. redisdriver.TestFenceAheadOfTheClockIsRemembered
//     redisdriver.TestFencesIncreaseOverALossWhateverWasGivenBefore
//  13. redisdriver.TestHeadOfTheQueueLooksWhenTheLeaseEnds
//     redisdriver.TestWaitersPollUntilTheSubscriptionIsThere
//     redisdriver.TestClientIsHeardBeforeItsFirstWait
//     redisdriver.TestWaiterWhoseAnswerIsUnderWayIsNotForgottenByAResubscription
//     token.TestWaiterAsksEveryThirdOfItsTTL
//     fault.TestHalfOpenSubscriptionIsFoundAndMadeAnew
//     fault.TestLockThatLingersIsHadWithoutASubscription
//  14. token.TestWaitersWithdrawBeforeTheDriverIsClosed
//     order.TestCancelledWaiterLeavesTheQueue
package behavior
