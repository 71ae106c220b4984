/* Withdrawal of announced messages, in one direction of a channel (docs/internals/spec/channel.md, WITHDRAW).

   S announces N messages, and may ask for each of them back. R's program may match a message, by a receive or by a matched probe that
   may or may not be followed by its receive, and then R reads the sender's buffer. Ring messages keep their order; FIN is on a way of
   its own. At any moment S sends one more message, LATER, by which R's program learns which sends S knows to be cancelled: it must not
   find any of these. Either end may die; the other notices and cuts the connection before it fails what is open. */

#ifndef N
#define N 2
#endif
#ifndef DEATHS
#define DEATHS 0 /* 1: S may die, 2: R may, 3: either */
#endif

mtype = { RTS, WITHDRAW, ATS, LATER };

/* Of a message at S. */
#define OPEN 1      /* announced; the buffer is the engine's */
#define TAKEN 2     /* complete: R has received it */
#define CANCELLED 3 /* complete: R has let go of it */
#define FAILED 4    /* complete: the peer was lost */

/* Of a message at R. */
#define WAITS 1     /* unexpected */
#define HELD 2      /* taken by a matched probe */
#define READING 3   /* matched; its bytes are read out of S's buffer */
#define RECEIVED 4
#define LETGO 5     /* withdrawn */
#define LOST 6      /* its sender was lost */

byte s[N], r[N];
bool asked[N], later;
bool dead[2], cut[2]; /* by end: S, R. cut: this end has cut the connection */
chan ring = [2 * N + 1] of { mtype, byte };
chan back = [N] of { mtype, byte };
chan fin = [N] of { byte };

/* No read touches a buffer that is the user's again. S's cut ends them: no region of S is readable after it. */
#define bufferFree(i) (s[i] == TAKEN || s[i] == CANCELLED || s[i] == FAILED)
#define readers(i) (r[i] == READING && !cut[0])

/* The sends that S knows to be cancelled, a bit for each. */
#define cancelled() ((s[0] == CANCELLED) | ((s[N - 1] == CANCELLED) << (N - 1)))

inline ended(i, how) {
	assert(s[i] == OPEN);       /* each ends once */
	s[i] = how;
	assert(!readers(i));        /* a buffer is read after its end */
	assert(how != CANCELLED || r[i] == LETGO || dead[1]); /* one outcome at both ends */
	assert(how != TAKEN || r[i] == RECEIVED || dead[1])   /* one outcome at both ends */
}

active proctype S() {
	byte next = 0, i;
#ifdef MUTANT_CANCELLED_BEFORE_WITHDRAW
	byte unsent;
#endif
end:	do
	:: atomic { !dead[0] && !cut[0] && next < N -> s[next] = OPEN; ring!RTS(next); next++ }
	:: atomic { !dead[0] && !cut[0] && next > 0 ->
			select(i : 0 .. N - 1);
			if
			:: s[i] == OPEN && !asked[i] ->
				asked[i] = true;
#ifdef MUTANT_CANCELLED_BEFORE_WITHDRAW
				s[i] = CANCELLED; /* and WITHDRAW goes when there is room */
				unsent = unsent | (1 << i)
#else
				ring!WITHDRAW(i)
#endif
#ifdef MUTANT_ENDS_WHEN_ASKED
				;
				s[i] = CANCELLED;
				assert(!readers(i))
#endif
			:: else
			fi
		}
#ifdef MUTANT_CANCELLED_BEFORE_WITHDRAW
	:: atomic { !dead[0] && !cut[0] && (unsent & 1) -> unsent = unsent & ~1; ring!WITHDRAW(0) }
	:: atomic { !dead[0] && !cut[0] && (unsent & 2) -> unsent = unsent & ~2; ring!WITHDRAW(1) }
#endif
	:: atomic { !dead[0] && !cut[0] && !later ->
			later = true;
			ring!LATER(cancelled())
		}
	:: atomic { !dead[0] && !cut[0] && nempty(back) ->
			back?ATS(i);
#if defined(MUTANT_ENDS_WHEN_ASKED) || defined(MUTANT_CANCELLED_BEFORE_WITHDRAW)
			if
			:: s[i] == OPEN -> ended(i, CANCELLED)
			:: else
			fi
#else
			ended(i, CANCELLED)
#endif
		}
	:: atomic { !dead[0] && !cut[0] && nempty(fin) ->
			fin?i;
#ifdef MUTANT_ENDS_WHEN_ASKED
			if
			:: s[i] == OPEN -> ended(i, TAKEN)
			:: else -> assert(s[i] != CANCELLED || r[i] == LETGO) /* one outcome at both ends */
			fi
#else
			ended(i, TAKEN)
#endif
		}
	:: atomic { (DEATHS & 1) && !dead[0] && !dead[1] -> dead[0] = true }
	:: atomic { !dead[0] && dead[1] && !cut[0] ->
#ifndef MUTANT_NOT_CUT
			cut[0] = true;
#endif
			for (i : 0 .. N - 1) {
				if
				:: s[i] == OPEN -> ended(i, FAILED)
				:: else
				fi
			}
			cut[0] = true
		}
	od
}

active proctype R() {
	mtype kind;
	byte i;
end:	do
	:: atomic { !dead[1] && !cut[1] && nempty(ring) ->
			ring?kind(i);
			if
			:: kind == RTS -> r[i] = WAITS
			:: kind == LATER -> /* a probe of R's program would find what waits */
				assert(!(i & 1) || r[0] != WAITS);
				assert(!(i & (1 << (N - 1))) || r[N - 1] != WAITS)
			:: kind == WITHDRAW && r[i] == WAITS ->
#ifndef MUTANT_NOT_ANSWERED
				back!ATS(i);
#endif
#ifndef MUTANT_NOT_FORGOTTEN
				r[i] = LETGO;
#endif
				skip
#ifdef MUTANT_ANSWERED_WHEN_MATCHED
			:: kind == WITHDRAW && (r[i] == READING || r[i] == HELD) -> back!ATS(i)
#endif
#ifndef MUTANT_HELD_IS_LEFT
			:: kind == WITHDRAW && r[i] == HELD -> r[i] = READING /* its bytes are fetched for the program's receive */
#endif
#ifdef MUTANT_UNKNOWN_IS_A_VIOLATION
			:: kind == WITHDRAW && r[i] == RECEIVED -> assert(r[i] != RECEIVED) /* a late WITHDRAW is no violation */
#endif
			:: else
			fi
		}
#ifndef NO_MATCH
	:: atomic { !dead[1] && !cut[1] -> /* the program; it need not do any of this */
			select(i : 0 .. N - 1);
			if
			:: r[i] == WAITS -> r[i] = READING
			:: r[i] == WAITS -> r[i] = HELD
			:: r[i] == HELD -> r[i] = READING
			:: else
			fi;
			assert(r[i] != READING || !bufferFree(i) || cut[0]) /* a buffer is read after its end */
		}
#endif
	:: atomic { !dead[1] && !cut[1] && r[0] == READING -> r[0] = RECEIVED; fin!0 }
	:: atomic { !dead[1] && !cut[1] && N > 1 && r[N - 1] == READING -> r[N - 1] = RECEIVED; fin!(N - 1) }
	:: atomic { (DEATHS & 2) && !dead[1] && !dead[0] -> dead[1] = true }
	:: atomic { !dead[1] && dead[0] && !cut[1] ->
			cut[1] = true;
			for (i : 0 .. N - 1) {
				if
				:: r[i] == WAITS || r[i] == HELD || r[i] == READING -> r[i] = LOST
				:: else
				fi
			}
		}
	od
}

/* When nothing is on its way any more, what was asked back has ended, and so has everything with a peer that died. R's program may still
   hold, or not have matched, what was not asked back: its steps are not waited for. */
active proctype Quiet() {
	byte i;
end:	atomic {
		(s[0] != 0 && empty(ring) && empty(back) && empty(fin) && !dead[0] &&
			(dead[1] -> cut[0] : r[0] != READING && r[N - 1] != READING)) ->
		for (i : 0 .. N - 1) {
			assert(s[i] != OPEN || !asked[i]); /* a cancelled send never ends */
			assert(s[i] != OPEN || !cut[0])    /* a cancelled send never ends */
		}
	}
}
