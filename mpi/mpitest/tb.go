package mpitest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// T returns the test for use in a rank: its log lines begin with the rank, and its FailNow, Fatal and Skip
// end the body of this rank and with it the job. ctx is the context of the body, or one derived from it; T
// panics for any other.
func T(ctx context.Context) testing.TB {
	r, ok := ctx.Value(rankKey{}).(*rank)
	if !ok {
		panic("mpitest: T needs the context that Run gives a body, or one that is made from it")
	}
	return &rankT{r.job.t, r, ctx}
}

// rankT is the test for use in a rank.
type rankT struct {
	testing.TB

	rank *rank
	ctx  context.Context
}

func (t *rankT) prefix() string { return fmt.Sprintf("rank %d: ", t.rank.number) }

func (t *rankT) Context() context.Context { return t.ctx }

func (t *rankT) Log(args ...any) {
	t.Helper()
	t.rank.job.log(t.prefix() + strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}

func (t *rankT) Logf(format string, args ...any) {
	t.Helper()
	t.rank.job.log(t.prefix() + fmt.Sprintf(format, args...))
}

func (t *rankT) Error(args ...any) {
	t.Helper()
	t.Log(args...)
	t.Fail()
}

func (t *rankT) Errorf(format string, args ...any) {
	t.Helper()
	t.Logf(format, args...)
	t.Fail()
}

func (t *rankT) Fatal(args ...any) {
	t.Helper()
	t.Log(args...)
	t.FailNow()
}

func (t *rankT) Fatalf(format string, args ...any) {
	t.Helper()
	t.Logf(format, args...)
	t.FailNow()
}

func (t *rankT) Skip(args ...any) {
	t.Helper()
	t.Log(args...)
	t.SkipNow()
}

func (t *rankT) Skipf(format string, args ...any) {
	t.Helper()
	t.Logf(format, args...)
	t.SkipNow()
}

// One of many runs fails without failing the test: see Explore.

func (t *rankT) Fail() {
	if x := t.rank.job.explored; x != nil {
		x.fail()
	} else {
		t.TB.Fail()
	}
}

func (t *rankT) FailNow() {
	if t.rank.job.explored == nil {
		t.TB.FailNow()
	}
	t.Fail()
	runtime.Goexit()
}

func (t *rankT) Failed() bool {
	x := t.rank.job.explored
	return t.TB.Failed() || x != nil && x.hasFailed()
}
