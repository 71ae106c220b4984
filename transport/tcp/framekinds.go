package tcp

import (
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

// frameKind handles the received frames of one opcode. A singleLink delivers them in order: begin, before any
// of the payload, and end. Lanes receive them in any order: beginAhead and arrived, which record what to
// deliver later, in order (lanedeliver.go).
type frameKind interface {
	// begin checks all of a frame that can be checked before its payload.
	begin(q *qp, i *incoming) error

	// end carries out a frame whose payload is placed.
	end(q *qp, i *incoming) error

	// beginAhead is begin when earlier frames may be missing.
	beginAhead(r *laneReceiver, i *incoming) error

	// arrived records what a frame completes when earlier frames may be missing. It returns how the frame is
	// counted, and what must be carried out exactly at its position in the sequence.
	arrived(r *laneReceiver, i *incoming) (sequence.Kind, stop, error)
}

// stop is what must be carried out exactly at a frame's position in the sequence of a direction.
type stop uint8

const (
	stopNone stop = iota
	stopClose
	stopTerminate
)

// frameKinds has the kind of each opcode. frame.Parse has checked the header's fields before.
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
	frame.Lost:        frameLost{},
}

// ordinaryFrame needs no handling: Ready and Alive only have to arrive.
type ordinaryFrame struct{}

func (ordinaryFrame) begin(*qp, *incoming) error { return nil }

func (ordinaryFrame) end(*qp, *incoming) error { return nil }

func (ordinaryFrame) beginAhead(*laneReceiver, *incoming) error { return nil }

func (ordinaryFrame) arrived(*laneReceiver, *incoming) (sequence.Kind, stop, error) {
	return sequence.Data, stopNone, nil
}

// frameMade is the result of making a request's next frame.
type frameMade uint8

const (
	mustWait    frameMade = iota // there is no room now, or the queue pair has ended
	madeNothing                  // the request needs no frame; go on with the next
	madeFrame
)
