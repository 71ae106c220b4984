package shm

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// The address of an endpoint is shm:HOST:NAME, followed by :PID.FD.INODE.PIDNS if peers can find its arena
// (see location). Endpoints with the same HOST can reach each other: it names the boot of the kernel and the
// network namespace. NAME is the abstract name of a Unix socket. It is random, so that nobody can listen
// there before.
const addressPrefix = "shm:"

// socketPrefix is the prefix of the abstract names of sockets.
const socketPrefix = "weft-"

// Host returns the HOST part of the addresses of this process. Endpoints of processes with the same Host can
// reach each other: they run on one kernel, in one network namespace.
func Host() (string, error) {
	boot, err := sys.BootID()
	if err != nil {
		return "", fmt.Errorf("identifying this host: %w", err)
	}
	space, err := os.Readlink("/proc/self/ns/net") // net:[4026531840]
	if err != nil {
		return "", fmt.Errorf("identifying the network namespace: %w", err)
	}
	space = strings.Trim(strings.TrimPrefix(space, "net:"), "[]")
	return strings.ReplaceAll(boot, "-", "") + "." + space, nil
}

func newAddress() (addr string, err error) {
	h, err := Host()
	if err != nil {
		return "", err
	}
	var name [16]byte
	if _, err := rand.Read(name[:]); err != nil {
		return "", err
	}
	return addressPrefix + h + ":" + socketPrefix + hex.EncodeToString(name[:]), nil
}

// split returns the host and the socket's name of an address.
func split(addr string) (host, name string, ok bool) {
	rest, ok := strings.CutPrefix(addr, addressPrefix)
	if !ok {
		return "", "", false
	}
	host, rest, ok = strings.Cut(rest, ":")
	name, _, _ = strings.Cut(rest, ":")
	return host, name, ok && host != "" && name != "" && len(name) < 100
}

// Reaches reports whether an address belongs to this host.
func (e *endpoint) Reaches(addr string) bool {
	mine, _, _ := split(e.addr)
	theirs, _, ok := split(addr)
	return ok && mine == theirs
}

// reachable returns the socket name of a rank's address, or an error if it cannot be reached from here.
func (e *endpoint) reachable(rank uint32, addr string) (string, location, error) {
	mine, _, _ := split(e.addr)
	theirs, name, ok := split(addr)
	switch {
	case !ok:
		return "", location{}, fmt.Errorf("%w: address %q of rank %d: not an address of shared memory",
			transport.ErrInvalid, addr, rank)
	case mine != theirs:
		return "", location{}, fmt.Errorf("%w: rank %d is on another host, or in another network "+
			"namespace, than rank %d (%s, %s): shared memory does not reach it",
			transport.ErrRefused, rank, e.id.Rank, theirs, mine)
	}
	_, text, _ := strings.Cut(addr, ":"+name+":")
	at, _ := parseLocation(text)
	return name, at, nil
}
