package sim

// mutant is a rule that a network breaks on purpose, so that tests can show that the conformance suite
// notices.
type mutant uint8

const (
	sound               mutant = iota
	tailAnywhere               // the last 8 bytes of a Write are placed in any order
	deliverEarly               // a message is delivered when it is placed, whatever is missing before it
	noBounds                   // remote bounds are not checked
	noRights                   // remote rights are not checked
	noDomain                   // the protection domain is not checked
	keysStay                   // a region keeps its key when its object is registered anew
	dropRNR                    // a Send that finds no Recv is dropped without a word
	dropOverrun                // completions beyond a CQ's depth are dropped without a word
	flushBackwards             // requests are flushed newest first
	flushTwice                 // the first request is flushed twice
	forgetFlush                // Recvs are not flushed
	ignoreFence                // FlagFence has no effect
	signalAll                  // unsignalled requests complete too
	inlineLate                 // inline bytes are taken when they are sent
	depthUnbounded             // the send queue takes any number
	traceOnRefusal             // a refused request moves the QP into error
	closeDrops                 // Close forgets what was posted before it
	acceptAnySecret            // the secret of a peer is not compared
	twoOnCollision             // crossing connects give a QP each
	placeAfterError            // bytes go on being placed into the regions of a QP in error
	overlongRecv               // a message longer than its Recv is cut off and reported as received
	readFirstOnly              // a Read is cut as its first segment on each side
	neverPlaced                // CQ.Placed reports nothing
	wakeLost                   // CQ.Wake does nothing
	lengthsDisagree            // PostSend does not compare the lengths
	postWhenClosing            // PostSend is allowed in any state
	holdMore                   // what FlagMore held back goes out only at a Poll
	ignoreAtomicFence          // FlagFence has no effect on a Read or an Atomic
	atomicTwice                // an Atomic is carried out twice
	atomicEarly                // an Atomic is carried out before earlier Writes are placed
	swapAlways                 // a CompareSwap does not compare
	noAlignment                // the alignment of an Atomic is not checked
	rebindKeeps                // a window's old key works on when it is bound anew
	windowForAll               // a window serves every queue pair of its domain
	windowUnbounded            // a window's bounds are its region's
	invalidateForgotten        // a Send with invalidate leaves the key in use
	deregisterBound            // a region with windows bound can be deregistered
	loseEvents                 // an event is raised and not delivered
	eventsRepeat               // a request for one event raises one for every completion
	ignoreSolicited            // a message that its sender has marked raises no event
	getAhead                   // a Get does not wait for what was posted before it
	putAhead                   // a Put does not wait for what was posted before it
	ignoreDepth                // Reads and Atomics go out whatever is outstanding
	depthIsOnesOwn             // the peer's depth of Reads does not count
	readEarly                  // a Read completes when its own bytes are placed
	readFromStart              // a Read's source segments begin at the beginning of their regions
	ignoreLane                 // an answer takes any lane, whichever was designated
	readCopied                 // the responder copies what is read when it is asked for
	oneHandler                 // a second completion handler is refused
	anyCore                    // the core of a handler is not checked
	moveForgets                // a queue that gets another handler forgets its event and its request for one
	lastQueueOnly              // of the queues of a core the one that came last is served
	oneAtATime                 // handlers of different locks wait for each other
	classIgnored               // bulk handlers are served like those of low latency
	endsUndelivered            // a core ends without delivering what has been raised
	mutants                    // their number
)

func withMutant(m mutant) Option { return func(n *Network) { n.mutant = m } }
