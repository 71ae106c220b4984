package check

import (
	"bytes"
	"encoding/binary"
)

// HeaderSize is the length of the header before a message's payload in checking mode.
const HeaderSize = 64

const (
	headerName = 4  // of the name of the element type
	headerLine = 24 // of the line that sent it
)

// PutHeader writes the header of a message: its element type, and the line that sent it.
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

// header is a cached header, for messages of one type from one call.
type header struct {
	element *Element
	bytes   [HeaderSize]byte
}

// Header is the parsed header of a message.
type Header struct {
	Layout     uint32
	Name, Line string
}

// ParseHeader parses a header. It returns the zero Header if b is too short.
func ParseHeader(b []byte) (h Header) {
	if len(b) >= HeaderSize {
		h.Layout = binary.LittleEndian.Uint32(b)
		h.Name, h.Line = text(b[headerName:headerLine]), text(b[headerLine:HeaderSize])
	}
	return h
}

// SameLayout reports whether a receive of elements matches the header b.
func SameLayout(b []byte, e *Element) bool {
	return fits(binary.LittleEndian.Uint32(b), e.Layout)
}

// putText fills b with a text and zeros. It keeps the end of a text that is too long.
func putText(b []byte, s string) {
	if len(s) > len(b) {
		s = s[len(s)-len(b):]
	}
	clear(b[copy(b, s):])
}

// text returns the text that putText has written.
func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
