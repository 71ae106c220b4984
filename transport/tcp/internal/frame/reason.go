package frame

import (
	"fmt"

	"github.com/weft-mpi/weft/transport/internal/violation"
)

// Reason is the reason why a connection is cut: layer, type and code, as in the IANA registry of RDDP errors
// if it is there.
type Reason uint32

const (
	ReasonLocal    Reason = 0x0_00_00 // RDMAP, local catastrophic error
	ReasonAccess   Reason = 0x0_01_02 // RDMAP, remote protection: access rights; key and bounds alike
	ReasonProtocol Reason = 0x0_02_06 // RDMAP, remote operation: unexpected opcode
	ReasonNoRecv   Reason = 0x1_02_02 // DDP, untagged: no buffer available
	ReasonReads    Reason = 0x1_02_03 // DDP, untagged: message number out of range
	ReasonTooLong  Reason = 0x1_02_05 // DDP, untagged: message too long for the buffer

	ReasonChecksum Reason = 0x2_00_02 // LLP, MPA: CRC error
)

func (t Reason) String() string {
	return fmt.Sprintf("layer %d, type %d, code %d", t>>16, t>>8&0xff, t&0xff)
}

// reasons maps the reasons of all providers to codes. Own maps to a local error: the peer did nothing wrong.
var reasons = [...]Reason{
	violation.Local: ReasonLocal, violation.Access: ReasonAccess,
	violation.Protocol: ReasonProtocol, violation.NoRecv: ReasonNoRecv, violation.Reads: ReasonReads,
	violation.TooLong: ReasonTooLong, violation.Own: ReasonLocal, violation.Checksum: ReasonChecksum,
}

// ReasonOf returns the code of a reason.
func ReasonOf(r violation.Reason) Reason { return reasons[r] }

// Violation returns the reason for a code; Protocol if it is unknown.
func (t Reason) Violation() violation.Reason {
	for r, code := range reasons {
		if r > 0 && code == t {
			return violation.Reason(r)
		}
	}
	return violation.Protocol
}
