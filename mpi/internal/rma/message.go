package rma

import (
	"encoding/binary"
	"fmt"
)

// Update asks the target's engine to change elements of its part of a window.
//
//	bytes  0-3   window
//	bytes  4-7   generation of the operation, comes back
//	bytes  8-11  number of the operation, comes back
//	byte   12    operator
//
// byte 13 1: the old elements are wanted
//
//	bytes 16-23  offset in the part, in bytes
//	then         for Swap the element to compare with; then the operands
type Update struct {
	Window     uint32
	Generation uint32
	Number     uint32
	Op         Code
	Fetch      bool
	Offset     uint64
	Data       []byte // for Swap the element to compare with is first
}

// UpdateHeader is the length of an Update without its data, MaxUpdate the largest length of its data.
const (
	UpdateHeader = 24
	MaxUpdate    = 512
)

// Append appends the message to b.
func (u *Update) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, u.Window)
	b = binary.LittleEndian.AppendUint32(b, u.Generation)
	b = binary.LittleEndian.AppendUint32(b, u.Number)
	fetch := byte(0)
	if u.Fetch {
		fetch = 1
	}
	b = append(b, byte(u.Op), fetch, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, u.Offset)
	return append(b, u.Data...)
}

// ParseUpdate reads a message; Data is a part of it.
func ParseUpdate(b []byte) (u Update, err error) {
	if len(b) <= UpdateHeader || len(b) > UpdateHeader+MaxUpdate || b[13] > 1 || Code(b[12]) == None ||
		Code(b[12]) >= Codes || b[14] != 0 || b[15] != 0 {
		return u, fmt.Errorf("UPDATE of %d bytes that is none", len(b))
	}
	return Update{Window: binary.LittleEndian.Uint32(b), Generation: binary.LittleEndian.Uint32(b[4:]),
		Number: binary.LittleEndian.Uint32(b[8:]), Op: Code(b[12]), Fetch: b[13] == 1,
		Offset: binary.LittleEndian.Uint64(b[16:]), Data: b[UpdateHeader:]}, nil
}

// Updated answers an Update.
//
//	bytes 0-3  generation
//	bytes 4-7  number
//	byte  8    Outcome
//
// then from byte 16 on, the old elements, if they are wanted
type Updated struct {
	Generation uint32
	Number     uint32
	Outcome    Outcome
	Old        []byte
}

// Outcome is the result of an Update.
type Outcome uint8

const (
	Done    Outcome = iota // it was executed
	Refused                // there is no such window, or no such element in it
	Stuck                  // another rank does not leave the lock of the part
	outcomes
)

// UpdatedHeader is the length of an Updated without the old elements.
const UpdatedHeader = 16

// Append appends the message to b.
func (u *Updated) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, u.Generation)
	b = binary.LittleEndian.AppendUint32(b, u.Number)
	b = append(b, byte(u.Outcome), 0, 0, 0, 0, 0, 0, 0)
	return append(b, u.Old...)
}

// ParseUpdated reads a message; Old is a part of it.
func ParseUpdated(b []byte) (u Updated, err error) {
	if len(b) < UpdatedHeader || len(b) > UpdatedHeader+MaxUpdate || Outcome(b[8]) >= outcomes {
		return u, fmt.Errorf("UPDATED of %d bytes that is none", len(b))
	}
	return Updated{Generation: binary.LittleEndian.Uint32(b), Number: binary.LittleEndian.Uint32(b[4:]),
		Outcome: Outcome(b[8]), Old: b[UpdatedHeader:]}, nil
}
