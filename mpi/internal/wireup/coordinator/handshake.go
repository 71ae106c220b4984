package coordinator

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
)

// magic begins the first frame of either side.
const magic = "weft-coordinator"

// version is the version of the protocol. Its position in the first frames is the same in all versions.
const version = 2

const (
	nonceSize   = 16
	proofSize   = sha256.Size
	greetSize   = len(magic) + 2 + nonceSize
	maxHello    = 512
	maxName     = 128
	helloFixed  = greetSize + 4 + 4 + 4
	answerSize  = 1 + proofSize
	secretSize  = 32
	accepted    = 0
	wrongSecret = 1
	wrongFormat = 2
)

// A hello describes a rank to rank 0.
type hello struct {
	rank, size, pid uint32
	kernel, host    string
}

func (h *hello) who() string { return fmt.Sprintf("process %d on %.64q", h.pid, h.host) }

var (
	errNoCoordinator = errors.New("what listens there is no coordinator of weft")
	errSecret        = errors.New("the job there has another secret: give all ranks the same file in " +
		"WEFT_SECRET_FILE, and each job an address of its own in WEFT_COORDINATOR")
)

type versionError struct{ theirs uint16 }

func (e *versionError) Error() string {
	return fmt.Sprintf("another version of weft: version %d of the coordinator's protocol there, %d here",
		e.theirs, version)
}

// greeting returns the first frame of rank 0.
func greeting() []byte {
	b := binary.BigEndian.AppendUint16([]byte(magic), version)
	nonce := make([]byte, nonceSize)
	rand.Read(nonce)
	return append(b, nonce...)
}

// checkGreeting checks the beginning of a first frame.
func checkGreeting(b []byte) error {
	if len(b) < greetSize || string(b[:len(magic)]) != magic {
		return errNoCoordinator
	}
	if v := binary.BigEndian.Uint16(b[len(magic):]); v != version {
		return &versionError{v}
	}
	return nil
}

// format returns the hello without its proof.
func (h *hello) format() []byte {
	b := greeting()
	b = binary.BigEndian.AppendUint32(b, h.rank)
	b = binary.BigEndian.AppendUint32(b, h.size)
	b = binary.BigEndian.AppendUint32(b, h.pid)
	for _, s := range []string{h.kernel, h.host} {
		s = s[:min(len(s), maxName)]
		b = append(append(b, byte(len(s))), s...)
	}
	return b
}

// parseHello parses a hello without its proof.
func parseHello(b []byte) (h hello, err error) {
	if err := checkGreeting(b); err != nil {
		return h, err
	}
	if len(b) < helloFixed {
		return h, errNoCoordinator
	}
	n := b[greetSize:]
	h.rank, h.size = binary.BigEndian.Uint32(n), binary.BigEndian.Uint32(n[4:])
	h.pid = binary.BigEndian.Uint32(n[8:])
	rest := b[helloFixed:]
	for _, s := range []*string{&h.kernel, &h.host} {
		if len(rest) == 0 || int(rest[0]) > min(maxName, len(rest)-1) {
			return h, errNoCoordinator
		}
		*s, rest = string(rest[1:1+rest[0]]), rest[1+rest[0]:]
	}
	if len(rest) != 0 {
		return h, errNoCoordinator
	}
	return h, nil
}

// proof shows knowledge of the secret for one use and one pair of first frames.
func proof(secret []byte, use string, greeting, hello []byte) []byte {
	h := hmac.New(sha256.New, secret)
	fmt.Fprintf(h, "weft coordinator %d %s\x00", version, use)
	h.Write(greeting)
	h.Write(hello)
	return h.Sum(nil)
}

// admit runs rank 0's side of the handshake. If it returns no error, the caller has proved the secret. It
// stores nothing for a caller that has not.
func admit(conn net.Conn, secret [secretSize]byte) (*link, hello, error) {
	ours := greeting()
	if err := writeFrame(conn, ours); err != nil {
		return nil, hello{}, err
	}
	b, err := readFrame(conn, maxHello)
	if err != nil {
		return nil, hello{}, err
	}
	refuse := func(verdict byte, err error) (*link, hello, error) {
		return nil, hello{}, errors.Join(err, writeFrame(conn, append([]byte{verdict},
			make([]byte, proofSize)...)))
	}
	if err := checkGreeting(b); err != nil {
		return refuse(wrongFormat, err)
	}
	if len(b) < greetSize+proofSize {
		return refuse(wrongFormat, errNoCoordinator)
	}
	text, theirs := b[:len(b)-proofSize], b[len(b)-proofSize:]
	if !hmac.Equal(theirs, proof(secret[:], "caller", ours, text)) {
		return refuse(wrongSecret, errors.New("another secret"))
	}
	h, err := parseHello(text)
	if err != nil {
		return refuse(wrongFormat, err)
	}
	err = writeFrame(conn, append([]byte{accepted}, proof(secret[:], "coordinator", ours, text)...))
	key := proof(secret[:], "session", ours, text)
	return newLink(conn, key, 'c', 'r'), h, err
}

// call runs a rank's side of the handshake. Errors other than errNoCoordinator, errSecret and a *versionError
// may be temporary.
func call(conn net.Conn, secret [secretSize]byte, h hello) (*link, error) {
	theirs, err := readFrame(conn, maxHello)
	if errors.Is(err, errFrame) {
		return nil, errNoCoordinator
	}
	if err == nil {
		err = checkGreeting(theirs)
	}
	if err != nil {
		return nil, err
	}
	text := h.format()
	if err := writeFrame(conn, slices.Concat(text, proof(secret[:], "caller", theirs, text))); err != nil {
		return nil, err
	}
	answer, err := readFrame(conn, answerSize)
	switch {
	case errors.Is(err, errFrame), err == nil && len(answer) != answerSize:
		return nil, errNoCoordinator
	case err != nil:
		return nil, err
	case answer[0] == wrongSecret:
		return nil, errSecret
	case answer[0] != accepted:
		return nil, errNoCoordinator
	case !hmac.Equal(answer[1:], proof(secret[:], "coordinator", theirs, text)):
		return nil, errSecret
	}
	return newLink(conn, proof(secret[:], "session", theirs, text), 'r', 'c'), nil
}

// errFrame means that the received bytes are not a frame of the protocol.
var errFrame = errors.New("a frame of a wrong length")

// writeFrame writes a length and the bytes in one piece.
func writeFrame(w io.Writer, b []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// readFrame reads a frame. It allocates nothing for a frame that is too long.
func readFrame(r io.Reader, maxBytes int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > uint32(maxBytes) {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", errFrame, n, maxBytes)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
