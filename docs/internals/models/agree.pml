/*
 * One agreement among members that fail, as docs/internals/spec/agree.md has it: its tree, its ballots, its four sweeps.
 *
 * Members begin at any moment and die at any moment. Each link keeps its order. Who notices a death drops
 * what is left on the link from the dead one, so any tail of what that has sent may be lost, on each link
 * another. Every death is noticed by everybody in the end, at each at a moment of its own; with ALONE, who has
 * no connection with the dead one, and does not wait for it, may never notice. A member that was cut off, or
 * stopped, may be taken for dead while it goes on; it dies later.
 *
 * README.md says what is left out. The names in capitals that begin with MUTANT take one rule out each.
 */

#ifndef N
#define N 3			/* members: 4 at most */
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef CUTOFF
#define CUTOFF 0		/* 1: who dies may be taken for dead before */
#endif
#ifndef ALONE
#define ALONE 0			/* 1: only who waits for a dead one, or has a connection with it, is sure to notice */
#endif
#ifndef MORTAL
#define MORTAL 15		/* bit n: member n may die */
#endif
#define ROOM 6			/* messages that a link holds: never full */
#define NONE 7

mtype = { UP, PROPOSE, ACK, COMMIT, NEWER };

/* A set of members is a mask, and so is a value: whose contributions it has. A ballot is told as 1 more, 0 for none. */
typedef Member {
	unsigned lost : 1;	/* others may take it for dead */
	unsigned dead : 1;
	unsigned knows : 4;	/* deaths */
	unsigned met : 4;	/* members that it has a connection with */
	unsigned deaf : 4;	/* deaths unnoticed until it waits for the dead one, or sends it something */
	unsigned started : 1;
	unsigned begun : 1;	/* it has started, or a message of the agreement has come */
	unsigned called : 4;	/* to whom NEWER has been sent */
	unsigned heard : 4;	/* whose UP has come, in this ballot as all that follows, but for accepted */
	unsigned combined : 4;
	unsigned priorballot : 3;
	unsigned prior : 4;
	unsigned upto : 3;	/* to whom UP has been sent */
	unsigned acceptedballot : 3;
	unsigned accepted : 4;
	unsigned proposed : 1;	/* the accepted value is of this ballot */
	unsigned acked : 4;
	unsigned acksent : 1;
	unsigned told : 4;
	unsigned committed : 1
}

Member m[4];
chan link[16] = [ROOM] of { mtype, byte, byte, byte };	/* kind, ballot, ballot in which the value was accepted, value */
byte decided;			/* the value with which somebody has returned; 0: nobody has */
byte deaths;
hidden byte i, below, above, carried, kind, ballot, priorballot, value;	/* of use inside one step only */

#define ME m[me]
#define BIT(x) (1 << (x))
#define IN(set, x) (((set) >> (x)) & 1)

/* The tree: 0 above 1 and 2, 1 above 3; a failed member's place is that of those below it. */
#define TOP3 ((N > 3 && !IN(ME.knows, 3)) -> 8 : 0)
#define TOP2 ((N > 2 && !IN(ME.knows, 2)) -> 4 : 0)
#define TOP1 (!IN(ME.knows, 1) -> 2 : TOP3)
#define ROOT (!IN(ME.knows, 0) -> 0 : (!IN(ME.knows, 1) -> 1 : (!IN(ME.knows, 2) -> 2 : 3)))
#define OWN (me == 0 -> (TOP1 | TOP2) : (me == 1 -> TOP3 : 0))
#define CHILDREN ((me == ROOT -> (OWN | TOP1 | TOP2) : OWN) & ~BIT(me))
#define PARENT (me == ROOT -> NONE : ((me == 3 && !IN(ME.knows, 1)) -> 1 : ROOT))

inline send(to, k, acc, v) {
	if
	:: ALONE && !IN(ME.knows, to) ->
		ME.met = ME.met | BIT(to);
		m[to].met = m[to].met | (m[to].dead -> 0 : BIT(me))
	:: else
	fi;
	if
	:: !m[to].dead && !IN(ME.knows, to) -> link[me * 4 + to]!k(ROOT, acc, v)
	:: else
	fi
}

inline drop(from) {
	do
	:: len(link[from * 4 + me]) > 0 -> link[from * 4 + me]?_, _, _, _
	:: else -> break
	od
}

inline accept(v) {
	ME.proposed = 1;
	ME.acceptedballot = ROOT + 1;
	ME.accepted = v
}

inline newballot() {
	ME.called = 0;
	ME.heard = 0;
	ME.acked = 0;
	ME.told = 0;
	ME.combined = (ME.started -> BIT(me) : 0);
#ifdef MUTANT_ACCEPTED_FORGOTTEN
	ME.acceptedballot = 0;
	ME.accepted = 0;
#endif
	ME.priorballot = ME.acceptedballot;
	ME.prior = ME.accepted;
	ME.upto = NONE;
	ME.proposed = 0;
	ME.acksent = 0
}

inline sendup() {
	carried = (ME.priorballot > 0 -> ME.prior : ME.combined);
	send(ME.upto, UP, ME.priorballot, carried);
	if
#ifndef MUTANT_ACK_NOT_REPEATED
	:: ME.acksent -> send(ME.upto, ACK, 0, 0)
#endif
	:: else
	fi
}

/* Those below are told of a ballot after the first: they wait for this member, and may not notice themselves. */
inline callballot() {
#ifndef MUTANT_BALLOT_NOT_CALLED
	if
	:: ME.begun && ROOT > 0 ->
		below = CHILDREN & ~(ME.heard | ME.called);
		ME.called = ME.called | below;
		for (i : 0 .. N - 1) {
			if
			:: IN(below, i) -> send(i, NEWER, 0, 0)
			:: else
			fi
		}
		i = 0
	:: else
	fi
#else
	skip
#endif
}

/* What is decided goes to those near in the tree that were not told. */
inline spread() {
	above = PARENT;
	below = CHILDREN | (above == NONE -> 0 : BIT(above));
	for (i : 0 .. N - 1) {
		if
		:: IN(below, i) && !IN(ME.told, i) -> ME.told = ME.told | BIT(i); send(i, COMMIT, 0, ME.accepted)
		:: else
		fi
	}
	i = 0
}

inline commit(from, v) {
	assert(decided == 0 || decided == v);	/* uniform */
	decided = v;
	ME.committed = 1;
	ME.accepted = v;
	ME.heard = 0;
	ME.combined = 0;
	ME.priorballot = 0;
	ME.prior = 0;
	ME.acked = 0;
	ME.called = 0;
	ME.told = BIT(from);
	spread()
}

#ifdef MUTANT_UP_BEFORE_THOSE_BELOW
#define HEARD true
#else
#define HEARD ((ME.heard & below) == below)
#endif
#ifdef MUTANT_ACK_BEFORE_THOSE_BELOW
#define ACKED (me != ROOT || (ME.acked & below) == below)
#else
#define ACKED ((ME.acked & below) == below)
#endif
inline advance() {
	below = CHILDREN;
	if
	:: ME.started && !ME.committed && ME.upto == NONE && HEARD && me != ROOT -> ME.upto = PARENT; sendup()
	:: else ->
		if
		:: ME.started && !ME.committed && ME.upto == NONE && HEARD ->
			ME.upto = me;
			if
#ifndef MUTANT_PRIOR_IGNORED
			:: ME.priorballot > 0 -> accept(ME.prior)
#endif
			:: else -> accept(ME.combined)
			fi
		:: else
		fi;
		if
		:: ME.started && !ME.committed && ME.proposed ->
			for (i : 0 .. N - 1) {
				if
				:: IN(below, i) && !IN(ME.told, i) ->
					ME.told = ME.told | BIT(i);
					send(i, PROPOSE, 0, ME.accepted)
				:: else
				fi
			}
			i = 0;
			if
			:: !ME.acksent && ACKED ->
				ME.acksent = 1;
				if
				:: me != ROOT -> send(ME.upto, ACK, 0, 0)
				:: else
				fi;
				if
#ifndef MUTANT_RETURNS_WITH_THE_PROPOSAL
				:: me == ROOT -> commit(ME.upto, ME.accepted)
				:: else
#else
				:: true -> commit(ME.upto, ME.accepted)
#endif
				fi
			:: else
			fi
		:: else
		fi
	fi
}

/* Deaths in set become known. */
inline failure(set) {
	above = ROOT;
	below = set & ~ME.knows;
	for (i : 0 .. N - 1) {
		if
		:: IN(below, i) -> drop(i)
		:: else
		fi
	}
	i = 0;
	ME.knows = ME.knows | set;
	ME.deaf = ME.deaf & ~set;
	ME.met = ME.met & ~set;
	ME.told = ME.told & ~set;
	ME.heard = ME.heard & ~set;
	ME.acked = ME.acked & ~set;
	if
	:: ME.committed ->
#ifndef MUTANT_DECISION_NOT_REPEATED
		spread()
#endif
	:: else ->
		if
		:: ROOT != above -> newballot(); callballot()
		:: else ->
			callballot();
			above = PARENT;
			if
#ifndef MUTANT_UP_NOT_REPEATED
			:: ME.upto != NONE && above != NONE && above != ME.upto -> ME.upto = above; sendup()
#endif
			:: else
			fi
#ifdef MUTANT_PROPOSAL_NOT_REPEATED
			;
			ME.told = (ME.told == 0 -> 0 : 15)
#endif
		fi;
		advance()
	fi
}

#ifdef MUTANT_ANY_ACCEPTED_WINS
#define STRONGER true
#else
#define STRONGER (priorballot > ME.priorballot)
#endif
#ifdef MUTANT_OLD_BALLOT_TAKEN
#define OLD false
#else
#define OLD (ballot < ROOT)
#endif

inline receive(from) {
	link[from * 4 + me]?kind, ballot, priorballot, value;
	assert(ballot <= me);			/* who takes this one for dead tells it nothing */
	if
	:: ballot > ROOT -> failure(BIT(ballot) - 1)
	:: else
	fi;
	ME.begun = ME.begun | (kind != NEWER);
	if
	:: kind == NEWER || (kind == COMMIT && ME.committed)
	:: kind == COMMIT && !ME.committed -> commit(from, value)
	:: kind != NEWER && kind != COMMIT && ME.committed ->
#ifndef MUTANT_DECISION_NOT_ANSWERED
		send(from, COMMIT, 0, ME.accepted)
#endif
	:: kind != NEWER && kind != COMMIT && !ME.committed && OLD ->
#ifndef MUTANT_NO_NEWER
		send(from, NEWER, 0, 0)
#endif
	:: else ->
		if
		:: kind == UP ->
			ME.heard = ME.heard | BIT(from);
			if
			:: priorballot == 0 -> ME.combined = ME.combined | value
			:: priorballot > 0 && STRONGER -> ME.priorballot = priorballot; ME.prior = value
			:: else
			fi
		:: kind == PROPOSE && ME.started && ME.upto != NONE && !ME.proposed -> accept(value)
		:: kind == ACK -> ME.acked = ME.acked | BIT(from)
		:: else
		fi;
		advance()
	fi;
	kind = 0;
	ballot = 0;
	priorballot = 0;
	value = 0
}

#define FROM(x) (x < N && x != me && !ME.dead && len(link[x * 4 + me]) > 0)
#define NEAR (CHILDREN | (me == ROOT -> 0 : BIT(PARENT)))
#define WAITS(x) (ME.started && !ME.committed && IN(NEAR, x) || IN(ME.met, x))
#define UNNOTICED(x) (x < N && !ME.dead && m[x].lost && !IN(ME.knows, x))
#define NOTICED(x) (UNNOTICED(x) && (!IN(ME.deaf, x) || WAITS(x)))
#define MISSED(x) (ALONE && UNNOTICED(x) && !IN(ME.deaf, x) && !WAITS(x))

proctype Run(byte me) {
end:	do
	:: d_step { !ME.dead && !ME.started ->
			ME.started = 1; ME.begun = 1; ME.combined = ME.combined | BIT(me); advance() }
	:: d_step { FROM(0) -> receive(0) }
	:: d_step { FROM(1) -> receive(1) }
	:: d_step { FROM(2) -> receive(2) }
	:: d_step { FROM(3) -> receive(3) }
	:: d_step { NOTICED(0) -> failure(1) }
	:: d_step { NOTICED(1) -> failure(2) }
	:: d_step { NOTICED(2) -> failure(4) }
	:: d_step { NOTICED(3) -> failure(8) }
	:: d_step { MISSED(0) -> ME.deaf = ME.deaf | 1 }
	:: d_step { MISSED(1) -> ME.deaf = ME.deaf | 2 }
	:: d_step { MISSED(2) -> ME.deaf = ME.deaf | 4 }
	:: d_step { MISSED(3) -> ME.deaf = ME.deaf | 8 }
	:: d_step { !ME.lost && CUTOFF && deaths < DEATHS && IN(MORTAL, me) -> deaths++; ME.lost = 1 }
	:: d_step { !ME.dead && (ME.lost || !CUTOFF && deaths < DEATHS && IN(MORTAL, me)) ->
			deaths = deaths + 1 - ME.lost;
			ME.lost = 1;
			ME.dead = 1;
			for (i : 0 .. N - 1) { drop(i) }
			/* nothing of a dead one is of use */
			ME.knows = 0; ME.met = 0; ME.deaf = 0; ME.started = 0; ME.begun = 0;
			ME.committed = 0; ME.accepted = 0; ME.acceptedballot = 0;
			newballot();
			i = 0 }
	:: timeout -> break
	od;
	assert(ME.dead || ME.committed);	/* everybody returns */
	assert(ME.dead || IN(decided, me))	/* a survivor's contribution counts */
}

init {
	atomic {
		for (i : 0 .. N - 1) {
			m[i].upto = NONE
		}
		i = 0;
		run Run(0); run Run(1);
		if
		:: N > 2 -> run Run(2)
		:: else
		fi;
		if
		:: N > 3 -> run Run(3)
		:: else
		fi
	}
}
