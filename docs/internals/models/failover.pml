/*
 * Failover of lanes: requirement H5 and the rules of "exactly once over lanes", in the small.
 *
 * One queue pair over two lanes or three, and one direction of it: a sender S sends N segments, each over whatever lane it likes, to a receiver R, which
 * has a reader on each lane. The other direction of the lanes carries acknowledgements and R's side of the failover. The network cuts a lane
 * at any moment, and a tail of what is on it is lost; the two ends notice on their own, in any order, or hear of it from each other.
 *
 * An end that loses a lane closes its descriptor, waits until the reader of that lane has left, and tells the other so, with what has arrived.
 * Only after that does the other send again what the lane has carried. What an end tells is always its whole state: which lanes are
 * closed, with a version, and the version of the other's that it has heard. It is told again when a lane goes or comes, and so may be lost. When
 * both ends know of both that a lane is closed they forget it, and its number can be given to a new one.
 *
 * Every step is taken when it can be and not otherwise. So "nobody can move" is the end of a run, and only the end in which everything has
 * been delivered and acknowledged is a good one, or one in which an end has lost its last lane for good.
 *
 * README.md says what is left out. The names in capitals that begin with MUTANT take one rule out each.
 */

#ifndef N
#define N 3			/* segments, each a message of its own: 4 at most */
#endif
#ifndef LANES
#define LANES 2			/* to begin with: 3 at most. There is a number for one lane more, or for none where there are three */
#endif
#ifndef CUTS
#define CUTS 2			/* how often the network cuts a lane: 3 at most */
#endif
#ifndef RETURNS
#define RETURNS 0		/* how often a lane is dialled anew */
#endif
#ifndef WIRE
#define WIRE 2			/* frames that a lane holds in each direction */
#endif
#ifndef ACKS
#define ACKS 1			/* 0: only the last segment is acknowledged on its own */
#endif
#ifndef INFULL
#define INFULL 0		/* 1: there is always room to tell all that has arrived */
#endif
#ifndef NOTICERS
#define NOTICERS 3		/* 1: S notices by itself that a lane is cut, 2: R does. Who does not has to be told */
#endif
/* TWICE_COUNTS_ONCE: that a segment is placed a second time is no error by itself, as long as it is not placed too late. */

mtype = { DATA, ACK, TELL };

#define S 0
#define R 1

/* What S knows of a segment. */
#define TODO 0
#define ON 1			/* and 2, 3: lane 0, 1, or 2, has carried it */
#define THERE 4			/* R has it, and its buffer is free for something else */

/* What an end knows of lanes that go or have gone: their numbers must not be used yet. */
typedef Losses {
	unsigned version : 3;	/* of what it tells */
	unsigned heard : 3;	/* the newest of the other's */
	unsigned confirmed : 3;	/* of its own, that the other has heard */
	byte here[3];		/* from this version on it tells that its side of the lane is closed */
	bool there[3];		/* the other has told that its side is */
	bool due		/* it is to be told */
}

chan toR[3] = [WIRE] of { mtype, byte, byte };
chan toS[3] = [WIRE] of { mtype, byte, byte };

/* The network. */
bool cut[3];
unsigned cuts : 3 = CUTS;
unsigned returns : 3 = RETURNS;
bool used[3];			/* numbers of lanes */
bool coming[3];			/* a lane that R has accepted, and S has not heard so */

Losses e[2];
bool sup[3];			/* S's descriptor of the lane is open */
bool rup[3];
bool leaving[3];		/* R's is closed, and the reader perhaps still there */

byte segment[4];
unsigned reused : 4;		/* bit n: the buffer of segment n holds something else */

byte writing[3];		/* the segment that the lane's reader is placing, counted from 1 */
unsigned placed : 4;		/* bit n: all of segment n is */
byte delivered;			/* how many segments are: from there on their memory is the user's again */
byte acked;			/* of how many S has been told */

hidden byte i;			/* of use inside one step only */
hidden byte arg;
hidden byte bits;

#define BIT(n) (1 << (n))
#define WATERMARK (BIT(delivered) - 1)
#define WAITS(n) (n < N && segment[n] == TODO)
#define WORK (WAITS(0) || WAITS(1) || WAITS(2) || WAITS(3))
#define BROKEN(l) (cut[l] || (!sup[l] && !coming[l]) || !rup[l])
#define KNOWS(me, l) (e[me].here[l] != 0 || e[me].there[l])
#define SALONE (!sup[0] && !sup[1] && !sup[2])
#define RALONE (!rup[0] && !rup[1] && !rup[2])
#define GIVEN_UP (returns == 0 && (SALONE || RALONE))

inline drop(c) {
	do
	:: len(c) > 0 -> c?_,_,_
	:: else -> break
	od;
	i = 0	/* a step must not end with a loop */
}

/* A frame goes on a lane; on one that is cut, or closed at its other end, it vanishes. */
#define ROOM(c, l) (BROKEN(l) || len(c) < WIRE)
inline put(c, l, frame, what, ranges) {
	if
	:: !BROKEN(l) -> c!frame,what,ranges
	:: else
	fi
}

#ifdef MUTANT_TOLD_ONCE
#define DUE (e[me].version == 1)
#else
#define DUE true
#endif

/* An end notes that its side of a lane is closed, and everything that had come of it placed or dropped. */
inline closed(me, l) {
	assert(e[me].version < 7);
	e[me].version++;
	e[me].due = DUE;
	e[me].here[l] = (e[me].here[l] == 0 -> e[me].version : e[me].here[l])
}

/* What an end tells: version and version heard, and a bit for each lane that it has closed. */
#define VERSIONS(me) (e[me].version + (e[me].heard << 3))
#define CLOSED(me) ((e[me].here[0] != 0 -> 1 : 0) + (e[me].here[1] != 0 -> 2 : 0) + (e[me].here[2] != 0 -> 4 : 0))

#ifdef MUTANT_FORGOTTEN_UNCONFIRMED
#define CONFIRMED(me, l) true
#else
#define CONFIRMED(me, l) (e[me].here[l] <= e[me].confirmed)
#endif

inline forget(me, l) {
	if
	:: e[me].there[l] && e[me].here[l] != 0 && CONFIRMED(me, l) -> e[me].there[l] = false; e[me].here[l] = 0
	:: else
	fi
}

#ifdef MUTANT_OLD_TELL_BELIEVED
#define NEWS(me) true
#else
#define NEWS(me) ((arg & 7) > e[me].heard)
#endif

/* Of a lane that is news in what the other tells: whether it is. It is noted. */
#define FRESH(me, l) ((bits & BIT(l)) && !e[me].there[l])

inline confirm(me) {
	e[me].confirmed = ((arg >> 3) > e[me].confirmed -> arg >> 3 : e[me].confirmed)
}

/* The lowest segment that is to be sent goes, for the first time or again. */
inline transmit(l) {
	for (i : 0 .. N - 1) {
		if
		:: segment[i] == TODO -> break
		:: else
		fi
	}
	arg = i;
	assert((reused & BIT(arg)) == 0);
	segment[arg] = ON + l;
#ifdef MUTANT_BUFFER_REUSED_WHEN_WRITTEN
	reused = reused | BIT(arg);
#endif
	put(toR[l], l, DATA, arg, 0);
	i = 0
}

/* S hears what R has. */
inline arrived(which) {
	for (i : 0 .. N - 1) {
		segment[i] = ((which) & BIT(i) -> THERE : segment[i])
	}
	reused = reused | (which);
	i = 0
}

/* What a lane has carried and has not arrived is sent again. */
inline again(l) {
	for (i : 0 .. N - 1) {
		segment[i] = (segment[i] == ON + l -> TODO : segment[i])
	}
	i = 0
}

/* S closes its descriptor of a lane. */
inline sclose(l) {
	sup[l] = false;
	drop(toS[l]);
#ifdef MUTANT_SENT_AGAIN_AT_ONCE
	again(l);
#endif
	closed(S, l)
}

/* What R has told of a lane. S closes it, if it has not yet; it may never have had it. */
inline sfresh(l) {
	if
	:: FRESH(S, l) ->
		e[S].there[l] = true;
		coming[l] = false;
		if
		:: sup[l] -> sclose(l)
		:: !sup[l] && e[S].here[l] == 0 -> closed(S, l)
		:: else
		fi;
		again(l)
	:: else
	fi
}

inline shear() {
	confirm(S);
	arrived(bits >> 3);
	if
	:: NEWS(S) ->
		e[S].heard = arg & 7;
		e[S].due = true;
		sfresh(0);
		sfresh(1);
		sfresh(2)
	:: else
	fi;
	forget(S, 0);
	forget(S, 1);
	forget(S, 2)
}

/*
 * Who does not notice by itself finds out at the latest when the other, without any lane, dials a new one. A lane of which the other end never
 * heard that it was accepted is noticed by who has accepted it.
 */
#define SNOTICES(l) ((NOTICERS & 1) || (RALONE && returns > 0))
#define RNOTICES(l) ((NOTICERS & 2) || (SALONE && returns > 0) || (!sup[l] && !KNOWS(S, l)))

proctype Sender(byte l) {
end:	do
	:: d_step { sup[l] && WORK && ROOM(toR[l], l) -> transmit(l) }
	:: d_step { sup[l] && BROKEN(l) && SNOTICES(l) -> sclose(l) }
#ifndef MUTANT_S_DOES_NOT_TELL
	:: d_step { sup[l] && e[S].due && ROOM(toR[l], l) -> put(toR[l], l, TELL, VERSIONS(S), CLOSED(S)); e[S].due = false }
#endif
	:: d_step { sup[l] && toS[l]?[ACK,_,_] -> toS[l]?ACK,_,bits; arrived(bits) }
	:: d_step { sup[l] && toS[l]?[TELL,_,_] -> toS[l]?TELL,arg,bits; shear() }
	od
}

/* R closes its descriptor of a lane. */
inline rclose(l) {
	rup[l] = false;
	leaving[l] = true
}

inline rfresh(l) {
	if
	:: FRESH(R, l) ->
		e[R].there[l] = true;
		if
		:: rup[l] -> rclose(l)
		:: !rup[l] && !leaving[l] && e[R].here[l] == 0 -> closed(R, l)
		:: else
		fi
	:: else
	fi
}

inline rhear() {
	confirm(R);
	if
	:: NEWS(R) ->
		e[R].heard = arg & 7;
		e[R].due = true;
		rfresh(0);
		rfresh(1);
		rfresh(2)
	:: else
	fi;
	forget(R, 0);
	forget(R, 1);
	forget(R, 2)
}

#ifdef MUTANT_READER_NOT_AWAITED
#define LEFT(l) true
#else
#define LEFT(l) (writing[l] == 0)
#endif

#ifdef MUTANT_OLD_LANE_READ
#define READS(l) (rup[l] || len(toR[l]) > 0)
#else
#define READS(l) rup[l]
#endif

#ifdef MUTANT_DUPLICATE_TAKEN
#define DUPLICATE false
#else
#define DUPLICATE (placed & BIT(arg))
#endif

#ifdef MUTANT_DELIVERED_BEYOND_A_HOLE
#define ALLEARLIER (placed > WATERMARK)
#else
#define ALLEARLIER (placed & BIT(delivered))
#endif

#ifdef MUTANT_DELIVERED_WHILE_WRITTEN
#define NOBODYWRITES true
#else
#define NOBODYWRITES (writing[0] != delivered + 1 && writing[1] != delivered + 1 && writing[2] != delivered + 1)
#endif

proctype Receiver(byte l) {
end:	do
	/* The reader of the lane. A segment is placed in two steps, between which anything may happen. */
	:: d_step { READS(l) && writing[l] == 0 && toR[l]?[DATA,_,_] ->
			toR[l]?DATA,arg,_;
#ifdef MUTANT_KEY_BEFORE_DUPLICATE
			assert(arg >= delivered || delivered > N);	/* its key may be gone */
#endif
			if
			:: DUPLICATE
			:: else -> assert(arg + 1 > delivered); writing[l] = arg + 1
			fi }
	:: d_step { writing[l] != 0 ->
			assert(writing[l] > delivered);			/* nothing is placed late over newer data … */
#ifndef TWICE_COUNTS_ONCE
			assert((placed & BIT(writing[l] - 1)) == 0);	/* … nor counted twice */
#endif
			placed = placed | BIT(writing[l] - 1);
			writing[l] = 0 }
	:: d_step { writing[l] != 0 && !rup[l] -> writing[l] = 0 }	/* the rest never came */
	:: d_step { READS(l) && writing[l] == 0 && toR[l]?[TELL,_,_] -> toR[l]?TELL,arg,bits; rhear() }

	/* The queue pair. */
	:: d_step { l == 0 && delivered < N && ALLEARLIER && NOBODYWRITES ->
			assert(placed & BIT(delivered));
			delivered++ }
	:: d_step { rup[l] && acked < delivered && (delivered == N || ACKS) && ROOM(toS[l], l) -> put(toS[l], l, ACK, 0, WATERMARK); acked = delivered }
	:: d_step { rup[l] && BROKEN(l) && RNOTICES(l) -> rclose(l) }
	:: d_step { leaving[l] && LEFT(l) ->
			leaving[l] = false;
#ifndef MUTANT_OLD_LANE_READ
			drop(toR[l]);
#endif
			closed(R, l) }
	/* What has arrived, in full, or as much of it as there is room for in the message: the watermark at least. */
	:: d_step { rup[l] && e[R].due && ROOM(toS[l], l) ->
			put(toS[l], l, TELL, VERSIONS(R), CLOSED(R) + (placed << 3)); e[R].due = false; acked = delivered }
	:: d_step { rup[l] && e[R].due && ROOM(toS[l], l) && placed != WATERMARK && !INFULL ->
			put(toS[l], l, TELL, VERSIONS(R), CLOSED(R) + (WATERMARK << 3)); e[R].due = false; acked = delivered }

	:: timeout -> break
	od;
	assert(delivered == N || GIVEN_UP);
	assert((segment[0] == THERE && segment[N - 2] == THERE && segment[N - 1] == THERE) || GIVEN_UP);
	assert((!KNOWS(S, l) && !KNOWS(R, l)) || GIVEN_UP)
}

#ifdef MUTANT_NUMBER_USED_AGAIN
#define FREE(l) (!sup[l] && !rup[l] && !leaving[l] && !coming[l] && writing[l] == 0)
#else
#define FREE(l) !used[l]
#endif

#ifdef MUTANT_NOT_TOLD_ANEW
#define CAME(me) e[me].due
#else
#define CAME(me) (e[me].due || KNOWS(me, 0) || KNOWS(me, 1) || KNOWS(me, 2))
#endif

/* The first lane to be cut may as well be lane 0: until then the others are as it is. */
#define FIRST(l) (l == 0 || cuts < CUTS)

/* A lane is cut; what an end has not read when it closes its descriptor is lost. One is dialled under a number that neither end knows of a lane that goes: R has it first, S when it hears that R has. */
proctype Network(byte l) {
end:	do
	:: d_step { cuts > 0 && !BROKEN(l) && FIRST(l) -> cut[l] = true; cuts-- }
#ifndef MUTANT_NEVER_COMES_BACK
	:: d_step { returns > 0 && sup[0] + sup[1] + sup[2] < LANES && FREE(l) ->
			returns--;
			used[l] = true;
			drop(toR[l]);
			drop(toS[l]);
			cut[l] = false;
			rup[l] = true;
			coming[l] = true;
			acked = 0;
			e[R].due = CAME(R) }
	:: d_step { coming[l] && !cut[l] && rup[l] -> coming[l] = false; sup[l] = true; e[S].due = CAME(S) }
	:: d_step { coming[l] && (cut[l] || !rup[l]) -> coming[l] = false; drop(toS[l]) }	/* it never had it */
#endif
	od
}

init {
	d_step { used[0] = true; used[1] = true; used[2] = LANES > 2; sup[0] = true; sup[1] = true; sup[2] = LANES > 2; rup[0] = true; rup[1] = true; rup[2] = LANES > 2 }
	atomic {
		run Sender(0); run Sender(1); run Sender(2);
		run Receiver(0); run Receiver(1); run Receiver(2);
		run Network(0); run Network(1); run Network(2)
	}
}
