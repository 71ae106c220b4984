package launcher

import (
	"errors"
	"net"
	"runtime"
	"strconv"
	"syscall"
)

// claims are the processors that a job has for itself, as far as other jobs of weft are concerned: two jobs on one machine do not bind
// their first ranks to the same core. Each claim is a name in Linux' abstract space of Unix sockets, of which the kernel lets one
// process have one, and which is free again when that process has ended, however it did. Nothing is ever sent to it.
//
// Jobs in network namespaces of their own do not see each other's claims; nor does anybody but weft.
type claims struct {
	prefix string // of the names
	held   map[int]net.PacketConn
}

const claimPrefix = "@weft-processor-"

func newClaims(prefix string) *claims { return &claims{prefix, make(map[int]net.PacketConn)} }

// hold claims processors, keeps those of them that it had already, and gives all others up. It returns those that another job has.
func (c *claims) hold(cpus []int) (taken []int) {
	wanted := make(map[int]bool)
	for _, cpu := range cpus {
		wanted[cpu] = true
	}
	for cpu, conn := range c.held {
		if !wanted[cpu] {
			conn.Close()
			delete(c.held, cpu)
		}
	}
	if runtime.GOOS != "linux" {
		return nil
	}
	for cpu := range wanted {
		if c.held[cpu] != nil {
			continue
		}
		conn, err := net.ListenPacket("unixgram", c.prefix+strconv.Itoa(cpu))
		switch {
		case err == nil:
			c.held[cpu] = conn
		case errors.Is(err, syscall.EADDRINUSE):
			taken = append(taken, cpu)
		}
		// Whatever else keeps the claim from being made, such as a sandbox, is no reason not to run the job.
	}
	return taken
}

// drop gives everything up.
func (c *claims) drop() { c.hold(nil) }
