/*
 * Failover of lanes: requirement H5 and the rules of "exactly once over lanes", in the small.
 *
 * One queue pair over two lanes, and one direction of it: a sender S sends N segments, each over whatever lane it likes, to a receiver R, which
 * has a reader on each lane. The other direction of the lanes carries acknowledgements and R's side of the failover. The network cuts a lane
 * at any moment, and a tail of what is on it is lost; the two ends notice on their own, in any order, or hear of it from each other.
 *
 * The loss of a lane is an epoch step: an end closes its descriptor, waits until the reader of that lane has left, counts its epoch up, and tells
 * the other (epoch, what it has received). Only behind that is sent again what the lane has carried. A lane that comes back is a step of both
 * ends, and its start-up says the same as that message. Between two such steps only one lane can be lost while the other lives: so where the
 * epochs of both ends are equal they speak of the same lanes.
 *
 * Every step is taken when it can be and not otherwise. So "nobody can move" is the end of a run, and only the end in which everything has
 * been delivered and acknowledged is a good one, or one in which an end has lost its last lane for good.
 *
 * README.md says what is left out. The names in capitals that begin with MUTANT take one rule out each.
 */

#ifndef N
#define N 3			/* segments, each a message of its own: 4 at most */
#endif
#ifndef CUTS
#define CUTS 2			/* how often the network cuts a lane */
#endif
#ifndef RETURNS
#define RETURNS 1		/* how often a lane comes back */
#endif
#ifndef WIRE
#define WIRE 2			/* frames that a lane holds in each direction */
#endif
/* TWICE_COUNTS_ONCE: that a segment is placed a second time is no error by itself, as long as it is not placed too late. */
#ifndef NOTICERS
#define NOTICERS 3		/* 1: S notices by itself that a lane is cut, 2: R does. Who does not has to be told */
#endif

mtype = { DATA, TELL, ACK };

/* What S knows of a segment. */
#define TODO 0
#define ON 1			/* and 2: it is on lane 0, or 1 */
#define LOST 3			/* the lane that carried it is lost, and R has not told yet whether it has it */
#define THERE 4			/* R has it, and its buffer is free for something else */

chan toR[2] = [WIRE] of { mtype, byte };
chan toS[2] = [WIRE] of { mtype, byte };

/* The network. */
bool cut[2];
unsigned cuts : 3 = CUTS;
unsigned returns : 3 = RETURNS;

/* The sender. */
bool sup[2];			/* its descriptor of the lane is open */
unsigned se : 4;		/* its epoch */
bool stell;			/* R is to be told of it */
byte segment[4];
unsigned reused : 4;		/* bit n: the buffer of segment n holds something else */

/* The receiver. */
bool rup[2];
bool leaving[2];		/* the descriptor is closed, and the epoch not stepped yet */
unsigned re : 4;
bool rtell;
byte writing[2];		/* the segment that the lane's reader is placing, counted from 1 */
unsigned placed : 4;		/* bit n: all of segment n is */
byte delivered;			/* how many segments are: from there on their memory is the user's again */
byte acked;			/* of how many S has been told */

hidden byte i;			/* of use inside one step only */
hidden byte arg;

#define BIT(n) (1 << (n))
#define WATERMARK (BIT(delivered) - 1)
#define WAITS(n) (n < N && segment[n] == TODO)
#define WORK (WAITS(0) || WAITS(1) || WAITS(2) || WAITS(3))
#define BROKEN(l) (cut[l] || !sup[l] || !rup[l])
#define GIVEN_UP (returns == 0 && ((!sup[0] && !sup[1]) || (!rup[0] && !rup[1])))

inline drop(c) {
	do
	:: len(c) > 0 -> c?_,_
	:: else -> break
	od;
	i = 0	/* a step must not end with a loop */
}

/* A frame goes on a lane; on one that is cut, or closed at its other end, it vanishes. */
#define ROOM(c, l) (BROKEN(l) || len(c) < WIRE)
inline put(c, l, frame, what) {
	if
	:: !BROKEN(l) -> c!frame,what
	:: else
	fi
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
	put(toR[l], l, DATA, arg);
	i = 0
}

/* S hears what R has received, and with it that R will take nothing more from the lanes that are lost. */
inline resolve(bits) {
	for (i : 0 .. N - 1) {
		segment[i] = ((bits) & BIT(i) -> THERE : (segment[i] == LOST -> TODO : segment[i]))
	}
	reused = reused | (bits);
	i = 0
}

/* An acknowledgement frees buffers. It says nothing about the others. */
inline acknowledged() {
	for (i : 0 .. N - 1) {
		segment[i] = (i < arg -> THERE : segment[i])
	}
	reused = reused | (BIT(arg) - 1);
	i = 0
}

#ifdef MUTANT_SENT_AGAIN_AT_ONCE
#define SUSPENSE TODO
#else
#define SUSPENSE LOST
#endif

/* S closes its descriptor of a lane. */
inline sclose(l) {
	sup[l] = false;
	se++;
	drop(toS[l]);
	for (i : 0 .. N - 1) {
		segment[i] = (segment[i] == ON + l -> SUSPENSE : segment[i])
	}
	i = 0
}

#ifdef MUTANT_OLD_TELL_BELIEVED
#define STALE(e) false
#else
#define STALE(e) (e < se)
#endif

#ifdef MUTANT_S_DOES_NOT_TELL
#define STELL false
#else
#define STELL true
#endif

/* Who does not notice by itself finds out at the latest when the other, without any lane, begins a new one. */
#define SNOTICES ((NOTICERS & 1) || (!rup[0] && !rup[1] && returns > 0))
#define RNOTICES ((NOTICERS & 2) || (!sup[0] && !sup[1] && returns > 0))

proctype Sender(byte l; byte other) {
end:	do
	:: d_step { sup[l] && WORK && ROOM(toR[l], l) -> transmit(l) }
	:: d_step { sup[l] && stell && ROOM(toR[l], l) -> put(toR[l], l, TELL, se); stell = false }
	:: d_step { sup[l] && BROKEN(l) && SNOTICES -> sclose(l); stell = STELL }
	:: d_step { sup[l] && toS[l]?[ACK,_] -> toS[l]?ACK,arg; acknowledged() }
	:: d_step { sup[l] && toS[l]?[TELL,_] ->
			toS[l]?TELL,arg;
			if
			:: STALE(arg >> 4)
			:: else ->
				if
				:: (arg >> 4) > se -> assert(sup[other]); sclose(other)
				:: else
				fi;
				stell = false;
				resolve(arg & 15)
			fi }
	od
}

/* R closes its descriptor of a lane. */
inline rclose(l) {
	rup[l] = false;
	leaving[l] = true
}

#ifdef MUTANT_READER_NOT_AWAITED
#define LEFT(l) true
#else
#define LEFT(l) (writing[l] == 0)
#endif

#ifdef MUTANT_OLD_EPOCH_TAKEN
#define READS(l) (rup[l] || len(toR[l]) > 0)
#else
#define READS(l) rup[l]
#endif

#ifdef MUTANT_TOLD_ONCE
#define RTELL (re == 0)
#else
#define RTELL true
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
#define NOBODYWRITES (writing[0] != delivered + 1 && writing[1] != delivered + 1)
#endif

proctype Receiver(byte l; byte other) {
end:	do
	/* The reader of the lane. A segment is placed in two steps, between which anything may happen. */
	:: d_step { READS(l) && writing[l] == 0 && toR[l]?[DATA,_] ->
			toR[l]?DATA,arg;
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
	:: d_step { READS(l) && writing[l] == 0 && toR[l]?[TELL,_] ->
			toR[l]?TELL,arg;
			if
			:: arg > re && rup[other] -> rclose(other)
			:: else
			fi }

	/* The queue pair. */
	:: d_step { l == 0 && delivered < N && ALLEARLIER && NOBODYWRITES ->
			assert(placed & BIT(delivered));
			delivered++ }
	:: d_step { rup[l] && acked < delivered && ROOM(toS[l], l) -> put(toS[l], l, ACK, delivered); acked = delivered }
	:: d_step { rup[l] && BROKEN(l) && RNOTICES -> rclose(l) }
	:: d_step { leaving[l] && LEFT(l) ->
			leaving[l] = false;
			rtell = RTELL;
			re++;
#ifndef MUTANT_OLD_EPOCH_TAKEN
			drop(toR[l])
#endif
			}
	/* What has been received, in full, or as much of it as there is room for in the message: the watermark at least. */
	:: d_step { rup[l] && rtell && !leaving[other] && ROOM(toS[l], l) ->
			put(toS[l], l, TELL, (re << 4) + placed); rtell = false; acked = delivered }
	:: d_step { rup[l] && rtell && !leaving[other] && ROOM(toS[l], l) && placed != WATERMARK ->
			put(toS[l], l, TELL, (re << 4) + WATERMARK); rtell = false; acked = delivered }

	:: timeout -> break
	od;
	assert(delivered == N || GIVEN_UP);
	assert((segment[0] == THERE && segment[N - 2] == THERE && segment[N - 1] == THERE) || GIVEN_UP)
}

/* A lane is cut; it comes back when both ends have closed what was there before, and know the same of the other lane. */
proctype Network(byte l; byte other) {
end:	do
	:: d_step { cuts > 0 && !BROKEN(l) -> cut[l] = true; cuts-- }
	:: d_step { cut[l] && len(toR[l]) > 0 && rup[l] -> drop(toR[l]) }
	:: d_step { cut[l] && len(toS[l]) > 0 && sup[l] -> drop(toS[l]) }
#ifndef MUTANT_NEVER_COMES_BACK
	:: d_step { returns > 0 && !sup[l] && !rup[l] && !leaving[l] && sup[other] == rup[other] && !leaving[other] && writing[l] == 0 ->
			returns--;
			assert(se == re);
			se++;
			re++;
			stell = false;
			rtell = false;
			acked = delivered;
			resolve(placed);
			drop(toR[l]);
			drop(toS[l]);
			cut[l] = false;
			sup[l] = true;
			rup[l] = true }
#endif
	od
}

init {
	d_step { sup[0] = true; sup[1] = true; rup[0] = true; rup[1] = true }
	atomic { run Sender(0, 1); run Sender(1, 0); run Receiver(0, 1); run Receiver(1, 0); run Network(0, 1); run Network(1, 0) }
}
