package sim

import (
	"testing"
	"time"

	"github.com/weft-mpi/weft/transport/verbstest"
)

// noticedBy names for each mutant the check of the suite that must not pass on it.
var noticedBy = map[mutant]string{
	tailAnywhere:    "Order/TailOfAWriteIsPlacedLast",
	deliverEarly:    "Order/DeliveredSendImpliesEarlierWrites",
	noBounds:        "MR/R6_WriteOutOfBoundsIsRefused",
	noRights:        "MR/R6_ReadWithoutTheRightIsRefused",
	noDomain:        "PD/KeyOfAnotherDomainIsRefused",
	keysStay:        "MR/StaleKeyIsRefusedAfterTheMemoryIsRegisteredAgain",
	dropRNR:         "Error/SendThatFindsNoRecvEndsTheQueuePair",
	dropOverrun:     "CQ/OverrunIsAnErrorAndNeverASilentDrop",
	flushBackwards:  "Error/C4_FlushCompletesEveryRequestOnceAndInOrder",
	flushTwice:      "Abort/UnderTrafficCompletesEverythingOnce",
	forgetFlush:     "Close/PostedRecvsCompleteFlushedOnce",
	ignoreFence:     "Order/FenceWaitsForEarlierReads",
	signalAll:       "Unsignalled/CompletesOnlyIfItFails",
	inlineLate:      "Inline/BuffersAreThePostersWhenTheCallReturns",
	depthUnbounded:  "QP/BeyondTheSendQueuesDepthIsErrQueueFullAndRecovers",
	traceOnRefusal:  "QP/N9_WrongRequestIsRefusedAtTheCallAndLeavesNoTrace",
	closeDrops:      "Close/C3_EarlierWorkIsDeliveredAndCompleted",
	acceptAnySecret: "Connect/WrongSecretIsRefused",
	twoOnCollision:  "Connect/CollisionForSureGivesExactlyOneQueuePair",
	placeAfterError: "Error/C6_NothingIsPlacedAfterTheEnd",
	overlongRecv:    "Error/MessageLongerThanItsRecv",
	getAhead:        "Read/IsCarriedOutAtOnceAfterEarlierWrites",
	putAhead:        "Write/IsPutAtOnceAfterEarlierWrites",
	readFirstOnly:   "Read/R3_SegmentsCutDifferentlyOnBothSides",
	neverPlaced:     "CQ/PlacedNamesEachQueuePairOnce",
	wakeLost:        "CQ/WakeEndsTheNextWait",
	lengthsDisagree: "QP/N9_WrongRequestIsRefusedAtTheCallAndLeavesNoTrace",
	postWhenClosing: "Close/C3_EarlierWorkIsDeliveredAndCompleted",
	loseEvents:      "CQ/N5_NextRaisesOneEvent",
	eventsRepeat:    "CQ/N5_NextRaisesOneEvent",
	ignoreSolicited: "CQ/N5_SolicitedOnly",
	holdMore:        "More/FlushSendsWhatWasHeldBack",

	ignoreAtomicFence: "Atomic/FenceWaitsForEarlierReads",
	atomicTwice:       "Atomic/FetchAddAddsAndGivesTheOriginal",
	atomicEarly:       "Atomic/FindsEarlierWritesPlaced",
	noAlignment:       "Atomic/N9_WrongRequestIsRefusedAtTheCallAndLeavesNoTrace",

	oneHandler:      "CQ/N1_TheDeviceTellsHowManyHandlers",
	anyCore:         "CQ/N2_WrongHandlersAreRefused",
	moveForgets:     "CQ/N3_MovedUnderTrafficNoEventIsLost",
	lastQueueOnly:   "CQ/N4_QueuesShareAHandler",
	oneAtATime:      "CQ/N6_HandlersOfDifferentLocksRunAtTheSameTime",
	classIgnored:    "CQ/N7_LowLatencyGoesFirstAndBulkIsNotStarved",
	endsUndelivered: "CQ/N8_CloseCompletesEverythingOnceAndDeliversTheEvents",

	readFromStart:  "Read/R1_NamesASetOfSegmentsOnEachSide",
	ignoreLane:     "Read/R1_AnswersComeOverTheDesignatedLane",
	readCopied:     "Read/R2_TheResponderWritesFromTheMemoryItself",
	readEarly:      "Read/R4_CompletesWhenEveryEarlierByteIsPlaced",
	ignoreDepth:    "Read/R5_MoreThanTheDepthWaitTheirTurn",
	depthIsOnesOwn: "Read/R5_MoreThanTheDepthWaitTheirTurn",
}

func withMutant(m mutant) Option { return func(n *Network) { n.mutant = m } }

// A test that cannot fail proves nothing: each broken network must be noticed by the check of the rule that
// it breaks.
func TestSuiteNoticesEveryMutant(t *testing.T) {
	checks := map[string]verbstest.Check{}
	for _, c := range verbstest.Checks() {
		checks[c.Name] = c
	}
	for m := sound + 1; m < mutants; m++ {
		c, ok := checks[noticedBy[m]]
		if !ok {
			t.Errorf("mutant %d: no check is named %q", m, noticedBy[m])
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			// A handler that happens to run in time hides what a mutant of its end does.
			for range 10 {
				err := c.Verify(&provider{seed: 1, options: []Option{withMutant(m)}}, 200*time.Millisecond)
				if err != nil {
					t.Log(err)
					return
				}
			}
			t.Fatalf("mutant %d passes", m)
		})
	}
}
