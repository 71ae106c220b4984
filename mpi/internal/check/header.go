package check

import (
	"bytes"
	"encoding/binary"
)

// HeaderSize is the length of the header that a message has in checking mode before its payload.
const HeaderSize = 64

const (
	headerName = 4  // of the name of the element type
	headerLine = 24 // of the line that sent it
)

// PutHeader writes the header of a message: what its elements are, and where it was sent.
func PutHeader(b []byte, e *Element, s *Site) {
	h := s.header.Load()
	if h == nil || h.element != e {
		h = &header{element: e}
		binary.LittleEndian.PutUint32(h.bytes[:], e.Layout)
		putText(h.bytes[headerName:headerLine], e.Name)
		putText(h.bytes[headerLine:], s.Line)
		s.header.Store(h)
	}
	*(*[HeaderSize]byte)(b) = h.bytes
}

// header is the header of the messages of one type that one call sends.
type header struct {
	element *Element
	bytes   [HeaderSize]byte
}

// Header is the header of a message.
type Header struct {
	Layout     uint32
	Name, Line string
}

// ParseHeader reads a header. Of one that is too short nothing is known.
func ParseHeader(b []byte) (h Header) {
	if len(b) >= HeaderSize {
		h.Layout = binary.LittleEndian.Uint32(b)
		h.Name, h.Line = text(b[headerName:headerLine]), text(b[headerLine:HeaderSize])
	}
	return h
}

// SameLayout reports whether a receive of elements takes what the header b announces.
func SameLayout(b []byte, e *Element) bool {
	return fits(binary.LittleEndian.Uint32(b), e.Layout)
}

// putText fills b with a text, or its end if it is too long, and zeros.
func putText(b []byte, s string) {
	if len(s) > len(b) {
		s = s[len(s)-len(b):]
	}
	clear(b[copy(b, s):])
}

// text is what putText has written.
func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
