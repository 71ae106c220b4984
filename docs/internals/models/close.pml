/*
 * The end of a connection of the TCP fabric: requirements C2 to C6, in the small.
 *
 * Two ends of one stream: 0 has called (the initiator), 1 has been called (the responder). The model begins when the responder has
 * sent Accept, the last message of streaming mode, and is itself in RDMA mode. Each end posts Sends and Reads, has Recvs posted, answers
 * the other's Reads, and may close or abort at any moment; the stream may be lost at any moment, and what is on it with it.
 *
 * Every step is taken when it can be and not otherwise. So "nobody can move" is the end of a run, and only the end in which both have
 * heard of the end once, and all that was posted has completed once, is a good one.
 *
 * README.md says what is left out. The names in capitals that begin with MUTANT take one rule out each.
 */

#ifndef WORK0
#define WORK0 {SEND, READ}	/* what end 0 may post, in this order, each at any moment */
#endif
#ifndef WORK1
#define WORK1 {READ, SEND}
#endif
#ifndef N0
#define N0 2			/* how much of it there is: 3 at most */
#endif
#ifndef N1
#define N1 2
#endif
#define RECVS 4			/* posted at each end: one more than there can be Sends */
#ifndef CLOSERS
#define CLOSERS 3		/* bit n: end n closes at any moment. Who does not closes when the other has */
#endif
#ifndef ABORTERS
#define ABORTERS 0		/* bit n: end n may abort at any moment */
#endif
#ifndef LOSS
#define LOSS 0			/* 1: the stream may be lost at any moment */
#endif
#ifndef WIRE
#define WIRE 3			/* frames that the stream holds in each direction */
#endif

/* ACCEPT is of streaming mode; all others are frames of RDMA mode. */
mtype = { ACCEPT, READY, SEND, READ, DONE, CLOSE, TERMINATE };

#define STREAMING 0		/* the initiator, which has not read Accept: there is no queue pair yet */
#define WELL 1
#define DRAINING 2		/* the other has closed its direction */
#define CLOSING 3		/* this end has been told to close */
#define CLOSED 4
#define ERROR 5
#define GONE 6			/* the stream ended before there was a queue pair */

typedef End {
	unsigned state : 3;
	unsigned open : 1;	/* its descriptor */
	unsigned quiet : 1;	/* the responder, which has not seen a frame */
	unsigned greeted : 1;	/* the initiator's Ready is sent */
	unsigned posted : 2;
	unsigned sent : 2;
	unsigned done : 4;	/* bit n: request n is carried out */
	unsigned completed : 4;	/* bit n: request n has its completion */
	unsigned head : 2;	/* the oldest request that has not */
	unsigned got : 3;	/* Recvs that a Send has used */
	unsigned told : 3;	/* Recvs that have their completion */
	unsigned owed : 3;	/* Reads of the other to answer */
	unsigned half : 1;	/* a Send is being placed */
	unsigned closing : 2;	/* 1: Close is due, 2: it is sent */
	unsigned peerclosed : 1;
	unsigned ends : 2	/* how often the user has heard that it is over */
}

End e[2];
chan to[2] = [WIRE] of { mtype };	/* what end n is to read */
mtype work0[3] = WORK0;
mtype work1[3] = WORK1;
bool lost;			/* the stream is */
bool disturbed;			/* somebody has aborted, or the stream was lost: not everything need be delivered */
bool reset;			/* an end was closed while something was on its way to it: what it sent last may be lost with it */
hidden byte i;			/* of use inside one step only */
hidden mtype what;

#define ME e[me]
#define PEER e[peer]
#define WORK(n) (me == 0 -> work0[n] : work1[n])
#define MOST (me == 0 -> N0 : N1)
#define ALIVE (ME.state == WELL || ME.state == DRAINING || ME.state == CLOSING)
#define OVER (ME.state == CLOSED || ME.state == ERROR)
#define ROOM (lost || !PEER.open || len(to[peer]) < WIRE)

/* How many of the requests that an end has posted are Reads. */
#define ISREAD(n, k) (e[n].posted > k && (n == 0 -> work0[k] : work1[k]) == READ)
#define READS(n) ((ISREAD(n, 0) -> 1 : 0) + (ISREAD(n, 1) -> 1 : 0) + (ISREAD(n, 2) -> 1 : 0))

/* A frame goes on the stream. Where there is none any more it vanishes. */
inline put(frame) {
	assert(me == 0 || ME.quiet == 0);		/* the responder is silent before it has seen a frame … */
	assert(me == 1 || ME.greeted || frame == READY);	/* … and the first one that it sees is Ready */
	if
	:: !lost && PEER.open -> to[peer]!frame
	:: else -> reset = reset || !lost
	fi
}

/* Requests complete from the head of the queue, as far as they are carried out. */
inline retire() {
	do
	:: ME.head < ME.posted && (ME.done & (1 << ME.head)) -> complete()
	:: else -> break
	od;
	i = 0	/* a step must not end with a loop */
}

inline complete() {
	assert((ME.completed & (1 << ME.head)) == 0);
	ME.completed = ME.completed | (1 << ME.head);
	ME.head++
}

inline disconnect() {
	ME.open = 0;
	reset = reset || len(to[me]) > 0;
	do
	:: len(to[me]) > 0 -> to[me]?_
	:: else -> break
	od;
	i = 0
}

/* The end, whatever it is: everything that is posted completes, in order. */
inline over(how) {
	ME.ends++;
	assert(ME.ends == 1);
	ME.state = how;
	disconnect();
#ifndef MUTANT_NOT_FLUSHED
	do
	:: ME.head < ME.posted -> complete()
	:: else -> break
	od;
	ME.told = RECVS;
#endif
#ifndef MUTANT_PLACED_AFTER_THE_END
	ME.half = 0;
#endif
	ME.owed = 0
}

#ifdef MUTANT_CUT_AT_PEERS_CLOSE
#define BOTH ME.peerclosed
#else
#ifdef MUTANT_CUT_AT_OWN_CLOSE
#define BOTH (ME.closing == 2)
#else
#define BOTH (ME.peerclosed && ME.closing == 2)
#endif
#endif

inline maybe_closed() {
	if
	:: BOTH && !OVER ->
		assert(ME.head == ME.posted);	/* what was posted before an orderly close has not merely been flushed */
		over(CLOSED)
	:: else
	fi
}

/* The first error. The other is told if the stream takes it at once; an initiator says Ready before it says anything. */
inline fail(tell) {
	if
#ifdef MUTANT_TOLD_BEFORE_READY
	:: tell ->
#else
	:: tell && !ME.quiet ->
#endif
		if
#ifndef MUTANT_TERMINATE_WITHOUT_READY
		:: me == 0 && !ME.greeted && (lost || !PEER.open || len(to[peer]) + 2 <= WIRE) -> put(READY); ME.greeted = 1; put(TERMINATE)
		:: (me == 1 || ME.greeted) && ROOM -> put(TERMINATE)
#else
		:: ROOM -> put(TERMINATE)
#endif
		:: else
		fi
	:: else
	fi;
	over(ERROR)
}

#ifdef MUTANT_FAILS_AGAIN
#define MAY_FAIL (ALIVE || ME.state == ERROR)
#else
#define MAY_FAIL ALIVE
#endif

#ifdef MUTANT_NOT_QUIET
#define MAY_SEND (ALIVE && ROOM && (me == 1 || ME.greeted))
#else
#define MAY_SEND (ALIVE && ROOM && (me == 1 || ME.greeted) && !ME.quiet)
#endif

/* Close goes when every request has gone and completed, and the Reads that have come are answered. */
#ifdef MUTANT_CLOSE_AHEAD_OF_WORK
#define WORK_GONE true
#else
#define WORK_GONE (ME.sent == ME.posted)
#endif
#ifdef MUTANT_OWN_READS_NOT_AWAITED
#define WORK_DONE true
#else
#define WORK_DONE (ME.head == ME.sent)
#endif
#ifdef MUTANT_ANSWERS_NOT_AWAITED
#define ANSWERED true
#else
#define ANSWERED (ME.owed == 0)
#endif
#ifdef MUTANT_NO_ANSWER_AFTER_CLOSE
#define ANSWERS (ME.closing != 2)
#else
#define ANSWERS true
#endif
#ifdef MUTANT_WORK_AFTER_CLOSE
#define OPEN_FOR_WORK ALIVE
#else
#define OPEN_FOR_WORK (ME.state == WELL || ME.state == DRAINING)
#endif
#ifdef MUTANT_END_OF_STREAM_UNNOTICED
#define ENDED lost
#else
#define ENDED (lost || !PEER.open)
#endif

#define NEXT(frame) (ME.open && ME.state != STREAMING && !ME.half && to[me]?[frame])

inline take(frame) {
	to[me]?frame;
	assert(!ME.quiet || frame == READY || frame == ACCEPT);
	assert(!ME.peerclosed || frame == DONE || frame == TERMINATE);
	ME.quiet = 0
}

inline drop(x) {
	do
	:: len(to[x]) > 0 -> to[x]?_
	:: else -> break
	od;
	i = 0
}

proctype Side(byte me; byte peer) {
end:	do
	/* The change of mode. Nothing but Accept is read in streaming mode. */
	:: d_step { ME.state == STREAMING && len(to[me]) > 0 -> assert(to[me]?[ACCEPT]); to[me]?ACCEPT; ME.state = WELL }
	:: d_step { ME.state == STREAMING && len(to[me]) == 0 && (lost || !PEER.open) -> ME.state = GONE; disconnect() }
	:: d_step { me == 0 && ALIVE && !ME.greeted && ROOM -> put(READY); ME.greeted = 1 }

	/* The user. */
	:: d_step { OPEN_FOR_WORK && ME.posted < MOST -> ME.posted++ }
	:: d_step { (ME.state == WELL && (CLOSERS & (1 << me))) || ME.state == DRAINING -> ME.state = CLOSING; ME.closing = 1 }
	:: d_step { MAY_FAIL && (ABORTERS & (1 << me)) -> disturbed = true; fail(true) }
	:: d_step { MAY_FAIL && (ABORTERS & (1 << me)) -> disturbed = true; fail(false) }	/* another frame stands half-written */

	/* Sending. */
	:: d_step { MAY_SEND && ME.sent < ME.posted ->
			what = WORK(ME.sent);
			put(what);
			if
			:: WORK(ME.sent) == SEND -> ME.done = ME.done | (1 << ME.sent)
			:: else
			fi;
			ME.sent++;
			retire() }
	:: d_step { MAY_SEND && ME.owed > 0 && ANSWERS -> put(DONE); ME.owed-- }
	:: d_step { MAY_SEND && ME.closing == 1 && WORK_GONE && WORK_DONE && ANSWERED ->
			put(CLOSE); ME.closing = 2; maybe_closed() }

	/* Receiving. A Send is placed in two steps: this end may fail in between. */
	:: d_step { NEXT(READY) -> take(READY) }
	:: d_step { NEXT(SEND) -> take(SEND); ME.half = 1 }
	:: d_step { ME.half -> assert(ME.ends == 0); ME.half = 0; assert(ME.got == ME.told && ME.told < RECVS); ME.got++; ME.told++ }
	:: d_step { NEXT(READ) -> take(READ); ME.owed++ }
	:: d_step { NEXT(DONE) ->
			take(DONE);
			for (i : 0 .. 2) {	/* the oldest Read that is not done */
				if
				:: i < ME.sent && WORK(i) == READ && (ME.done & (1 << i)) == 0 -> break
				:: else
				fi
			}
			assert(i < ME.sent);
			ME.done = ME.done | (1 << i);
			i = 0;
			retire() }
	:: d_step { NEXT(CLOSE) ->
			take(CLOSE);
			assert(ME.owed == 0);
			assert(PEER.posted == PEER.sent && ME.got == PEER.posted - READS(peer));	/* everything before it has been delivered */
			ME.peerclosed = 1;
			ME.state = (ME.state == WELL -> DRAINING : ME.state);
			maybe_closed() }
	:: d_step { NEXT(TERMINATE) -> take(TERMINATE); fail(false) }
	:: d_step { ALIVE && len(to[me]) == 0 && !ME.half && ENDED -> fail(false) }

	:: timeout -> break
	od;
	assert(ME.state == GONE || OVER);
	assert(ME.state == GONE || ME.ends == 1);
	assert(ME.state == GONE || (ME.head == ME.posted && ME.told == RECVS));
	assert(disturbed || ME.state == CLOSED)
}

/* The network. */
proctype Network() {
end:	do
	:: d_step { LOSS && !lost && (e[0].open || e[1].open) -> lost = true; disturbed = true; drop(0); drop(1) }
	/* Bytes for a descriptor that is closed reset the stream: what its owner sent last may never be read. */
	:: d_step { reset && !e[0].open && e[1].open && len(to[1]) > 0 -> assert(disturbed); drop(1) }
	:: d_step { reset && !e[1].open && e[0].open && len(to[0]) > 0 -> assert(disturbed); drop(0) }
	od
}

init {
	d_step {
		e[0].open = 1;
		e[1].open = 1;
		e[1].state = WELL;
		e[1].quiet = 1;
		to[0]!ACCEPT
	}
	atomic { run Side(0, 1); run Side(1, 0); run Network() }
}
