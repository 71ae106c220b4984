package sim

// mutant is a rule that a network breaks on purpose, so that tests can show that the conformance suite
// notices.
type mutant uint8

const (
	sound             mutant = iota
	tailAnywhere             // the last 8 bytes of a Write are placed in any order
	deliverEarly             // a message is delivered when it is placed, before earlier ones
	noBounds                 // remote bounds are not checked
	noRights                 // remote rights are not checked
	noDomain                 // the protection domain is not checked
	keysStay                 // a region keeps its key when its object is reused
	dropRNR                  // a Send that finds no Recv is dropped silently
	dropOverrun              // completions beyond a CQ's depth are dropped silently
	flushBackwards           // requests are flushed newest first
	flushTwice               // the first request is flushed twice
	forgetFlush              // Recvs are not flushed
	ignoreFence              // FlagFence has no effect
	signalAll                // unsignalled requests complete too
	inlineLate               // inline bytes are read when they are sent
	depthUnbounded           // the send queue is unbounded
	traceOnRefusal           // a refused request moves the QP into error
	closeDrops               // Close discards earlier requests
	acceptAnySecret          // the secret of a peer is not compared
	twoOnCollision           // crossing connects give a QP each
	placeAfterError          // bytes are still placed into the regions of a QP in error
	overlongRecv             // a message longer than its Recv is cut off and reported as received
	readFirstOnly            // a Read is cut as its first segment on each side
	neverPlaced              // CQ.Placed reports nothing
	wakeLost                 // CQ.Wake does nothing
	lengthsDisagree          // PostSend does not compare the lengths
	postWhenClosing          // PostSend is allowed in any state
	holdMore                 // requests held back by FlagMore go out only at a Poll
	ignoreAtomicFence        // FlagFence has no effect on a Read or an Atomic
	atomicTwice              // an Atomic is carried out twice
	atomicEarly              // an Atomic is carried out before earlier Writes are placed
	noAlignment              // the alignment of an Atomic is not checked
	loseEvents               // raised events are not delivered
	eventsRepeat             // a request for one event raises one for every completion
	ignoreSolicited          // a solicited message raises no event
	getAhead                 // a Get does not wait for earlier requests
	putAhead                 // a Put does not wait for earlier requests
	ignoreDepth              // Reads and Atomics go out regardless of the depth
	depthIsOnesOwn           // the peer's depth of Reads is ignored
	readEarly                // a Read completes when its own bytes are placed
	readFromStart            // a Read's source segments begin at the start of their regions
	ignoreLane               // an answer takes any lane, not the designated one
	readCopied               // the responder copies the bytes of a Read when it arrives
	oneHandler               // a second completion handler is refused
	anyCore                  // the core of a handler is not checked
	moveForgets              // a queue with a new handler loses its event and its request for one
	lastQueueOnly            // only the latest queue of a core is served
	oneAtATime               // handlers of different locks wait for each other
	classIgnored             // bulk handlers are served like those of low latency
	endsUndelivered          // a core ends without delivering raised events
	mutants                  // their number
)
