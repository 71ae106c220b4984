package tcp

import (
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

// frameKind is what a queue pair does with the frames of one opcode that come in. A connection that is
// alone brings them in order: begin, before any of the payload, and end. Lanes bring them in any order:
// beginAhead and arrived, which note what is told of later, in order (lanedeliver.go).
type frameKind interface {
	// begin checks all of a frame that can be checked before its payload.
	begin(q *qp, i *incoming) error

	// end carries out a frame whose payload is placed.
	end(q *qp, i *incoming) error

	// beginAhead is begin where frames before this one may be missing.
	beginAhead(r *laneReceiver, i *incoming) error

	// arrived notes what a frame completes, where frames before this one may be missing: what it counts as,
	// and what must be carried out exactly at its place in the sequence.
	arrived(r *laneReceiver, i *incoming) (sequence.Kind, stop, error)
}

// stop is what must be carried out exactly at a frame's place in the sequence of a direction.
type stop uint8

const (
	stopNone stop = iota
	stopInvalidate
	stopClose
	stopTerminate
)

// frameKinds are the kinds of frames by opcode. frame.Parse has checked the header's fields before.
var frameKinds = [...]frameKind{
	frame.Ready:       ordinaryFrame{},
	frame.Write:       frameWrite{},
	frame.Send:        frameSend{},
	frame.Immediate:   frameImmediate{},
	frame.ReadRequest: frameReadRequest{},
	frame.ReadWrite:   frameReadWrite{},
	frame.Close:       frameClose{},
	frame.Terminate:   frameTerminate{},
	frame.Alive:       ordinaryFrame{},
	frame.Atomic:      frameAtomic{},
	frame.AtomicDone:  frameAtomicDone{},
	frame.Invalidate:  frameInvalidate{},
	frame.Lost:        frameLost{},
}

// ordinaryFrame needs nothing: Ready and Alive tell all that they have to tell by coming.
type ordinaryFrame struct{}

func (ordinaryFrame) begin(*qp, *incoming) error { return nil }

func (ordinaryFrame) end(*qp, *incoming) error { return nil }

func (ordinaryFrame) beginAhead(*laneReceiver, *incoming) error { return nil }

func (ordinaryFrame) arrived(*laneReceiver, *incoming) (sequence.Kind, stop, error) {
	return sequence.Data, stopNone, nil
}

// frameMade is what became of a request whose next frame was due.
type frameMade uint8

const (
	mustWait    frameMade = iota // or it has ended the queue pair
	madeNothing                  // it needs no frame; the next request is due
	madeFrame
)
