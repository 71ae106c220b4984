/*
 * A virtual channel whose rings are enlarged and shrunk while messages flow: requirements E3 to E14, in the small.
 *
 * Two ranks, 0 and 1. Direction d carries messages from rank d to rank 1-d; both directions run at once. The ring of direction d is
 * in the memory of rank 1-d, its receiver, and the reply slot for the replies that direction d's sender awaits is in the memory
 * of rank d: in a region of the other direction.
 *
 * Every step is taken when it can be and not otherwise: nobody polls in vain. So "nobody can move" is the end of a run, and
 * only the end in which everything is delivered and all memory given back is a good one; and a run without an end is a cycle.
 *
 * README.md says what is left out. The names in capitals that begin with MUTANT take one rule out each.
 */

#ifndef SIZES0
#define SIZES0 {0, 1, 0}	/* what rank 0 sends: 0, 1 … fits the slots of that phase and of those above */
#endif
#ifndef SIZES1
#define SIZES1 {1, 0, 0}
#endif
#ifndef N0
#define N0 3			/* how many messages: 6 at most */
#endif
#ifndef N1
#define N1 3
#endif
#define HUGE 3			/* a size that fits no slot */
#ifndef PHASES
#define PHASES 2
#endif
#ifndef LINES0
#define LINES0 4		/* of a ring in phase 0; a message takes one line */
#endif
#ifndef LINES1
#define LINES1 4		/* in any other phase */
#endif
#if LINES0 > LINES1
#define MOST LINES0
#else
#define MOST LINES1
#endif
#ifndef REGIONS
#define REGIONS 3		/* of one direction at one time: as many as the model has room for */
#endif
#ifndef LIMIT
#define LIMIT REGIONS		/* as many as may be registered */
#endif
#ifndef SHRINKS0
#define SHRINKS0 0		/* how often rank 0 may find that it has been idle or small for long */
#endif
#ifndef SHRINKS1
#define SHRINKS1 0
#endif
#ifndef REFUSALS
#define REFUSALS 0		/* how often a receiver may lack memory; ALWAYS: as often as it is asked */
#endif
#define ALWAYS 255
#ifndef CORRUPTIONS
#define CORRUPTIONS 0
#endif
#ifndef OVERDUE
#define OVERDUE 0		/* how often an answer may be asked for again because it has not come in time */
#endif
#ifndef STARVE
#define STARVE 0		/* whether a sender without credits may ask for the next phase */
#endif

#ifdef MUTANT_NO_CONTROL_LINES
#define CONTROL 0
#else
#define CONTROL 1		/* lines that data leaves to control */
#endif
#ifdef MUTANT_NO_CREDIT_LINES
#define CREDITS 0
#else
#define CREDITS 1		/* lines that data and control leave to CREDIT */
#endif
#define THRESHOLD 2		/* a CREDIT is sent for so many lines that are not advertised */

#define COUNTS 63		/* lines are counted modulo 64, where the library has 2^32 */

/* Of every set 0 is "none", "unused". */
mtype = { DATA, RTS, RESIZE, CREDIT };	/* a message; ENLARGE and SHRINK are one: RESIZE to a phase */
#define EMPTY 0				/* a line … */
#define FLYING 1			/* … posted, and not placed */
#define PLACED 2			/* … placed, and not read */
#define UNREGISTERED 0			/* a region … */
#define LIVE 1
#define FOLLOWED 2			/* … that nothing can be in flight to but, perhaps, a reply to an own request */
#define POSTED 1			/* a reply in flight … */
#define HEAD 2				/* … of which the head flag is placed, and the tail not */
#define ACK 1
#define NACK 2

typedef Line {
	unsigned state : 2;
	unsigned kind : 3;
	unsigned arg : 3;	/* DATA, RTS: sequence number. RESIZE: the wanted phase */
	unsigned place : 2;	/* RESIZE: the region of the reply slot */
	unsigned gen : 3;	/* RESIZE: its generation */
	unsigned count : 6	/* the lines that the sender has consumed of the other direction */
}

typedef Region {		/* registered as one: a ring, and a reply slot for replies to its owner's requests */
	Line line[MOST];
	unsigned state : 2;
	unsigned phase : 2;
	unsigned head : 3;	/* of the reply slot: the generation, or 0 for cleared */
	unsigned tail : 3;
	unsigned verdict : 2;
	unsigned key : 2;
	unsigned intact : 1	/* whether the checksum is right */
}

typedef Answer {
	unsigned state : 2;
	unsigned place : 2;
	unsigned gen : 3;
	unsigned verdict : 2;
	unsigned key : 2;	/* ACK: the new region */
	unsigned again : 1	/* a Write with immediate: it was asked for again */
}

typedef Sender {
	unsigned next : 3;	/* message to send */
	unsigned sent : 6;
	unsigned freed : 6;
	unsigned pos : 3;
	unsigned ring : 2;	/* the region at the peer into which it writes */
	unsigned phase : 2;
	unsigned wants : 2;	/* the phase to ask for when it is the time + 1; 0: none. Meanwhile nothing but CREDIT is sent */
	unsigned wanted : 2;	/* the requested phase + 1; 0: no request is open */
	unsigned place : 2;	/* of its reply slot */
	unsigned gen : 3;
	unsigned refused : 2;	/* the least phase that the peer has refused */
	unsigned shrinks : 1;
	unsigned again : 1;	/* the answer is asked for again, and the answer to that is not delivered */
	unsigned lent : 6	/* bit n: message n is announced, and its buffer not yet released */
}

typedef Receiver {
	unsigned ring : 2;	/* the region that it polls */
	unsigned pos : 3;
	unsigned consumed : 6;
	unsigned advertised : 6;
	unsigned next : 3;	/* sequence number that is due */
	unsigned asked : 2;	/* the phase to reply + 1; 0: nothing */
	unsigned place : 2;
	unsigned gen : 3;
	unsigned again : 1;	/* the next answer was asked for again */
	unsigned reading : 6;	/* bit n: message n is being read out of the sender's memory */
	Answer last		/* to be repeated */
}

typedef Direction {
	Sender s;
	Receiver r;
	Region region[REGIONS];
	Answer answer[2];	/* in flight to the sender: the second one only when it is asked for again */
	unsigned came : 1;	/* the one that was asked for again is placed, and not delivered */
	unsigned asks : 2;	/* untagged Sends in flight to the receiver: "say it again" */
	unsigned fins : 6	/* bit n: message n's FIN is in flight to the sender */
}

Direction dir[2];
byte refusals = REFUSALS;
byte corruptions = CORRUPTIONS;
byte overdue = OVERDUE;
byte size0[6] = SIZES0;
byte size1[6] = SIZES1;
hidden byte i, n, spare;	/* of use inside one step only */

#define S dir[me].s
#define R dir[peer].r
#define RING dir[me].region[S.ring]		/* where I write */
#define MINE dir[peer].region[R.ring]		/* what I poll */
#define REPLY_SLOT dir[peer].region[S.place]
#define MESSAGES (me == 0 -> N0 : N1)
#define SIZE (me == 0 -> size0[S.next] : size1[S.next])
#define LINES(phase) (phase == 0 -> LINES0 : LINES1)
#define FREE (LINES(S.phase) - ((S.sent - S.freed) & COUNTS))
#define UNADVERTISED ((R.consumed - R.advertised) & COUNTS)

#ifdef MUTANT_WRITE_AFTER_ENLARGE
#define MAY_WRITE true
#else
#define MAY_WRITE (S.wanted == 0)
#endif
#define MAY_SEND (MAY_WRITE && S.wants == 0 && S.next < MESSAGES)
#define ROOM_DATA (FREE > CONTROL + CREDITS)
#define ROOM_CONTROL (FREE > CREDITS)
#define ROOM_CREDIT (FREE > 0)
#define SETTLED (S.wanted == 0)
#ifdef MUTANT_ASKED_WHILE_OWED
#define MAY_ASK ROOM_CONTROL
#else
#define MAY_ASK (((S.sent - S.freed) & COUNTS) < THRESHOLD)	/* then no CREDIT of the peer is unread */
#endif

/* One Write into the peer's ring. The provider may place it at any time from now on, before or after any other. */
inline post(k, what) {
	assert(RING.line[S.pos].state == EMPTY);	/* else it could fall on a message that is unread */
	RING.line[S.pos].state = FLYING;
	RING.line[S.pos].kind = k;
	RING.line[S.pos].arg = what;
	RING.line[S.pos].count = R.consumed;
	R.advertised = R.consumed;
	if
	:: k == RESIZE -> RING.line[S.pos].place = S.place; RING.line[S.pos].gen = S.gen
	:: else
	fi;
	S.pos = (S.pos + 1) % LINES(S.phase);
	S.sent = (S.sent + 1) & COUNTS
}

/* The request goes; the vector stays with the sender, which has returned "zero bytes, no error". */
inline ask(p) {
	S.place = R.ring;
#ifndef MUTANT_GENERATION_NOT_STEPPED
	S.gen = S.gen % 7 + 1;
#else
	S.gen = 1;
#endif
	S.wanted = p + 1;
	post(RESIZE, p)
}

inline reply(a) {
	i = (dir[peer].answer[0].state == 0 -> 0 : 1);
	assert(dir[peer].answer[i].state == 0);
	dir[peer].answer[i].state = POSTED;
	dir[peer].answer[i].place = a.place;
	dir[peer].answer[i].gen = a.gen;
	dir[peer].answer[i].verdict = a.verdict;
	dir[peer].answer[i].key = a.key;
	dir[peer].answer[i].again = R.again;
	R.again = 0
}

/* My region n is no more: deregistered, and its memory may be given to another. */
inline free(n) {
	dir[peer].region[n].state = UNREGISTERED;
	dir[peer].region[n].phase = 0;
	dir[peer].region[n].head = 0;
	dir[peer].region[n].tail = 0;
	dir[peer].region[n].verdict = 0;
	dir[peer].region[n].key = 0;
	dir[peer].region[n].intact = 0;
	for (i : 0 .. MOST - 1) {
		if
		:: dir[peer].region[n].line[i].state == PLACED ->	/* what lies there is lost; a Write in flight still flies */
			dir[peer].region[n].line[i].state = EMPTY
		:: else
		fi
	}
}

#ifdef MUTANT_OWN_ANSWER_NOT_AWAITED
#define AWAITED false
#else
#define AWAITED true
#endif

/* An old region goes when it is followed, unless the reply to an own request is still to be written into it. */
inline sweep() {
	for (spare : 0 .. REGIONS - 1) {
		if
		:: dir[peer].region[spare].state == FOLLOWED && !(S.wanted != 0 && S.place == spare && AWAITED) -> free(spare)
		:: else
		fi
	}
	spare = 0	/* a step must not end with a loop */
}

/* The peer's count of consumed lines came with a message. */
inline credited(c) {
	i = (c - S.freed) & COUNTS;
	if
	:: i <= ((S.sent - S.freed) & COUNTS) -> S.freed = c
	:: else ->	/* older than what an ACK has credited, or nonsense */
#ifdef MUTANT_STALE_CREDIT_IS_A_VIOLATION
		assert(false);
#endif
#ifdef MUTANT_STALE_CREDIT_TAKEN
		S.freed = c;
#endif
		assert(i > COUNTS / 2)
	fi
}

/* A place for a new ring: the first that is not registered. */
inline allocate() {
	spare = 0;
	do
	:: spare < REGIONS && dir[peer].region[spare].state != UNREGISTERED -> spare++
	:: else -> break
	od;
	assert(spare < LIMIT)
}

/* From the ACK on the new ring is polled. What was sent before is consumed: the ACK says so, without a count. */
inline swap() {
#ifndef FREE_AT_FIRST_MESSAGE
	MINE.state = FOLLOWED;	/* the request was the last message in it, and all before it has been read */
	sweep();
#endif
	R.ring = R.last.key;
	R.pos = 0;
	MINE.phase = R.asked - 1;
#ifndef MUTANT_ACK_BEFORE_REGISTERED
	MINE.state = LIVE;
#endif
#ifndef MUTANT_ACK_NOT_COUNTED_AS_TOLD
	R.advertised = R.consumed;
#endif
}

/* The new ring is reserved and registered before the reply goes. */
inline grant() {
	allocate();
	R.last.place = R.place;
	R.last.gen = R.gen;
	R.last.verdict = ACK;
	R.last.key = spare;
	reply(R.last);
	swap();
	R.asked = 0;
	R.place = 0;
	R.gen = 0
}

#define PEEK(l) \
	:: d_step { R.asked == 0 && R.pos != l && MINE.line[l].state == PLACED && MINE.line[l].kind == RESIZE -> \
		R.asked = MINE.line[l].arg + 1; R.place = MINE.line[l].place; R.gen = MINE.line[l].gen; grant() }

/* A message of the ring, in its order. */
inline read() {
	assert(UNADVERTISED < LINES(MINE.phase));	/* else the peer has written beyond its credits */
	R.consumed = (R.consumed + 1) & COUNTS;
#ifdef FREE_AT_FIRST_MESSAGE
	for (spare : 0 .. REGIONS - 1) {	/* nothing can be in flight to the rings before this one */
		if
		:: spare != R.ring && dir[peer].region[spare].state == LIVE -> dir[peer].region[spare].state = FOLLOWED
		:: else
		fi
	}
	sweep();
#endif
	n = MINE.line[R.pos].count;
	credited(n);
	if
	:: MINE.line[R.pos].kind == DATA ->
		assert(MINE.line[R.pos].arg == R.next);		/* nothing lost, doubled or out of order */
		R.next++
	:: MINE.line[R.pos].kind == RTS ->
		assert(MINE.line[R.pos].arg == R.next);
		R.reading = R.reading | (1 << R.next);
		R.next++
	:: MINE.line[R.pos].kind == RESIZE ->
		assert(R.asked == 0);
		R.asked = MINE.line[R.pos].arg + 1;
		R.place = MINE.line[R.pos].place;
		R.gen = MINE.line[R.pos].gen
	:: else
	fi;
	MINE.line[R.pos].state = EMPTY;
	MINE.line[R.pos].kind = 0;
	MINE.line[R.pos].arg = 0;
	MINE.line[R.pos].place = 0;
	MINE.line[R.pos].gen = 0;
	MINE.line[R.pos].count = 0;
	R.pos = (R.pos + 1) % LINES(MINE.phase)
}

#ifdef MUTANT_DELIVERY_NOT_AWAITED
#define ALL_PLACED true
#else
#define ALL_PLACED (!S.again)	/* else an answer may still be on its way into the landing place */
#endif
#define ANSWERED (S.wanted != 0 && ALL_PLACED && REPLY_SLOT.head == S.gen && TAIL)
#ifdef MUTANT_TAIL_NOT_AWAITED
#define TAIL true
#else
#define TAIL (REPLY_SLOT.tail == S.gen)
#endif

inline accept() {
	if
	:: REPLY_SLOT.verdict == ACK ->
		for (i : 0 .. MOST - 1) {
			assert(RING.line[i].state != FLYING)	/* the old mirror is freed now: nothing may still be sent from it */
		}
		S.ring = REPLY_SLOT.key;
		S.phase = S.wanted - 1;
		S.pos = 0;
		S.freed = S.sent;
#if defined(FREE_AT_FIRST_MESSAGE) && !defined(MUTANT_NO_FIRST_MESSAGE)
		post(CREDIT, 0)		/* else a receiver whose peer has become idle would keep its old ring for ever */
#endif
	:: else ->
#ifndef MUTANT_REFUSAL_FORGOTTEN
		if
		:: S.wanted - 1 > S.phase -> S.refused = S.wanted - 1
		:: else		/* it could not shrink; that forbids nothing */
		fi
#else
		skip
#endif
	fi;
	S.wanted = 0;
	S.place = 0;
	sweep()
}

#define FINISHED(d) ( \
	dir[d].s.next == (d == 0 -> N0 : N1) && dir[d].r.next == dir[d].s.next && \
	dir[d].s.lent == 0 && dir[d].r.reading == 0 && dir[d].fins == 0 && \
	dir[d].s.wants == 0 && dir[d].s.wanted == 0 && dir[d].r.asked == 0 && dir[d].asks == 0 && \
	!dir[d].s.again && !dir[d].r.again && !dir[d].came)

/* A Send is delivered when all that was posted before it is placed. */
#define HAS(l, what) (l < MOST && MINE.line[l % MOST].state == what)
#define IN_RING(what) (HAS(0, what) || HAS(1, what) || HAS(2, what) || HAS(3, what) || HAS(4, what))
#ifdef MUTANT_OLD_ANSWER_REPEATED
#define UNANSWERED (R.last.verdict == 0)
#else
#define UNANSWERED (R.asked != 0 || IN_RING(PLACED))	/* nothing follows the request in its ring */
#endif

/* Memory that is held for nothing. */
#define KEPT(d, n) (dir[d].region[n].state != UNREGISTERED && n != dir[d].r.ring)
#define ALONE(d) (!KEPT(d, 0) && !KEPT(d, 1) && !KEPT(d, 2))

proctype Rank(byte me; byte peer) {
end:	do
	/* The send routine, called again and again with the vector that waits. */
	:: d_step { MAY_SEND && SIZE <= S.phase && ROOM_DATA -> post(DATA, S.next); S.next++ }
	:: d_step { MAY_SEND && SIZE > S.phase && (SIZE == HUGE || SIZE >= S.refused) && ROOM_CONTROL ->
			S.lent = S.lent | (1 << S.next); post(RTS, S.next); S.next++ }
	:: d_step { SETTLED && MAY_SEND && SIZE > S.phase && SIZE < HUGE && SIZE < S.refused && MAY_ASK -> n = SIZE; ask(n) }
#if STARVE
	:: d_step { SETTLED && MAY_SEND && SIZE <= S.phase && !ROOM_DATA &&
			S.phase + 1 < PHASES && S.phase + 1 < S.refused -> S.wants = S.phase + 2 }
#endif
	:: d_step { SETTLED && S.wants == 0 && S.shrinks > 0 && S.phase > 0 && (S.next == MESSAGES || SIZE < S.phase) ->
			S.shrinks--; S.wants = 1 }
	:: d_step { SETTLED && S.wants != 0 && MAY_ASK -> n = S.wants - 1; S.wants = 0; ask(n) }

	/* The reply. */
	:: d_step { ANSWERED && REPLY_SLOT.intact -> accept() }
#ifndef MUTANT_NOT_ASKED_AGAIN
	:: d_step { ANSWERED && !REPLY_SLOT.intact ->
#ifndef MUTANT_LANDING_NOT_CLEARED
			REPLY_SLOT.head = 0; REPLY_SLOT.tail = 0;
#endif
			S.again = 1; dir[me].asks++ }
#endif
	:: d_step { S.wanted != 0 && !S.again && !ANSWERED && overdue > 0 -> overdue--; S.again = 1; dir[me].asks++ }
#ifdef MUTANT_ASKED_AGAIN_WITHOUT_WAITING
	:: d_step { S.wanted != 0 && dir[me].asks == 0 && R.last.verdict != 0 && corruptions > 0 -> corruptions--; dir[me].asks++ }
#endif

	/* Receiving. */
	:: d_step { MINE.line[R.pos].state == PLACED -> read() }
	:: d_step { MAY_WRITE && UNADVERTISED >= THRESHOLD && ROOM_CREDIT -> post(CREDIT, 0) }
	:: d_step { R.asked != 0 -> grant() }
	:: d_step { R.asked != 0 && refusals > 0 ->
			refusals = (refusals == ALWAYS -> ALWAYS : refusals - 1);
			R.last.place = R.place; R.last.gen = R.gen; R.last.verdict = NACK; R.last.key = 0;
			reply(R.last); R.asked = 0; R.place = 0; R.gen = 0 }
	:: d_step { dir[peer].asks > 0 && !IN_RING(FLYING) ->
			dir[peer].asks--;
			R.again = 1;
			if
			:: UNANSWERED	/* the answer to the request is the one that is asked for */
			:: else -> assert(R.last.verdict != 0); reply(R.last)
			fi }
#ifdef MUTANT_ACK_BEFORE_DRAINED
	PEEK(1) PEEK(2) PEEK(3)
#endif
#ifdef MUTANT_ACK_BEFORE_REGISTERED
	:: d_step { MINE.state == UNREGISTERED -> MINE.state = LIVE }
#endif

	/* Rendezvous: the Read is done, then FIN, then the sender's buffer is its own again. */
	:: d_step { R.reading != 0 ->
			i = R.reading & ~(R.reading - 1);	/* the first of them */
			assert(dir[peer].s.lent & i);
			R.reading = R.reading & ~i; dir[peer].fins = dir[peer].fins | i }
	:: d_step { dir[me].fins != 0 -> S.lent = S.lent & ~dir[me].fins; dir[me].fins = 0 }

	:: timeout -> break
	od;
	assert(FINISHED(0) && FINISHED(1));
	assert(ALONE(0) && ALONE(1))
}

/* The provider places what rank me has posted. Its key is looked up at that moment. */
#define PLACE(n, l) \
	:: d_step { dir[me].region[n].line[l].state == FLYING -> \
		assert(dir[me].region[n].state != UNREGISTERED); dir[me].region[n].line[l].state = PLACED }
#if MOST > 4
#define FIFTH(n) PLACE(n, 4)
#else
#define FIFTH(n)
#endif
#define PLACES(n) PLACE(n, 0) PLACE(n, 1) PLACE(n, 2) PLACE(n, 3) FIFTH(n)

#define FLIES(a) dir[peer].answer[a]
#define TARGET(a) dir[me].region[FLIES(a).place]

/* A reply comes in two steps, its tail last. In between the body is neither the old nor the new one. */
inline land(a, good) {
	assert(TARGET(a).state != UNREGISTERED);
	TARGET(a).tail = FLIES(a).gen;
	TARGET(a).verdict = FLIES(a).verdict;
	TARGET(a).key = FLIES(a).key;
	TARGET(a).intact = good;
	dir[peer].came = dir[peer].came | FLIES(a).again;
	FLIES(a).again = 0;
	FLIES(a).state = 0; FLIES(a).place = 0; FLIES(a).gen = 0; FLIES(a).verdict = 0; FLIES(a).key = 0
}

#ifdef FLAGS_CORRUPTED
#define DAMAGED(a) :: d_step { FLIES(a).state == HEAD && corruptions > 0 -> corruptions--; FLIES(a).gen = 0; land(a, false) }
#else
#define DAMAGED(a)
#endif

#define ANSWER(a) \
	:: d_step { FLIES(a).state == POSTED -> \
		assert(TARGET(a).state != UNREGISTERED); TARGET(a).head = FLIES(a).gen; TARGET(a).intact = false; FLIES(a).state = HEAD } \
	:: d_step { FLIES(a).state == HEAD -> land(a, true) } \
	:: d_step { FLIES(a).state == HEAD && corruptions > 0 -> corruptions--; land(a, false) } \
	DAMAGED(a)

proctype Provider(byte me; byte peer) {
end:	do
	PLACES(0)
	PLACES(1)
	PLACES(2)
	ANSWER(0)
	ANSWER(1)
	:: d_step { dir[peer].came && FLIES(0).state == 0 && FLIES(1).state == 0 -> dir[peer].came = 0; dir[peer].s.again = 0 }
	od
}

#define pick(x) if :: x = 0 :: x = 1 :: x = HUGE fi

init {
#ifdef ANY
	atomic {
		pick(size0[0]); pick(size0[1]); pick(size1[0]); pick(size1[1])
	}
#endif
	d_step {
		dir[0].s.refused = PHASES;
		dir[1].s.refused = PHASES;
		dir[0].s.shrinks = SHRINKS0;
		dir[1].s.shrinks = SHRINKS1;
		dir[0].region[0].state = LIVE;
		dir[1].region[0].state = LIVE
	}
	atomic {
		run Rank(0, 1); run Rank(1, 0); run Provider(0, 1); run Provider(1, 0)
	}
}
