package engine

// Call is the call of package mpi to which an event belongs. A call that consists of several, such as
// Sendrecv, produces the events of those. A call without a constant of its own counts as the first of its
// family: Issend as Isend.
type Call uint8

const (
	CallSend Call = iota
	CallSsend
	CallIsend
	CallRecv
	CallIrecv
	CallProbe
	CallWait // of one request, some or all
	CallTest // likewise
	CallCollective

	// Package mpi reports the calls from here on. Events of the calls that they consist of come within them.
	CallFinalize
	CallWinAllocate
	CallWinCreate
	CallWinAllocateShared
	CallWinCreateDynamic
	CallWinFree
	CallAttach
	CallDetach
	CallPut
	CallGet
	CallPutView
	CallGetView
	CallRput
	CallRget
	CallAccumulate
	CallGetAccumulate
	CallRaccumulate
	CallRgetAccumulate
	CallFetchAndOp
	CallCompareAndSwap
	CallFence
	CallLock
	CallUnlock
	CallLockAll
	CallUnlockAll
	CallFlush
	CallFlushLocal
	CallFlushAll
	CallFlushLocalAll
	CallPost
	CallStart
	CallComplete
	CallWinWait
	Calls // the number of calls
)

var callNames = [Calls]string{
	"Send", "Ssend", "Isend", "Recv", "Irecv", "Probe", "Wait", "Test", "collectives", "Finalize",
	"WinAllocate", "WinCreate", "WinAllocateShared", "WinCreateDynamic", "Win.Free", "Win.Attach",
	"Win.Detach", "Win.Put", "Win.Get", "Win.PutView", "Win.GetView", "Win.Rput", "Win.Rget",
	"Win.Accumulate", "Win.GetAccumulate", "Win.Raccumulate", "Win.RgetAccumulate", "Win.FetchAndOp",
	"Win.CompareAndSwap", "Win.Fence", "Win.Lock", "Win.Unlock", "Win.LockAll", "Win.UnlockAll",
	"Win.Flush", "Win.FlushLocal", "Win.FlushAll", "Win.FlushLocalAll", "Win.Post", "Win.Start",
	"Win.Complete", "Win.Wait",
}

// String returns the name of the MPI call, or of the first of its family.
func (c Call) String() string { return callNames[c] }

// Composite reports whether a call may consist of others, whose events come within it.
func (c Call) Composite() bool { return c >= CallFinalize }
