package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// magic is what a file begins with.
const magic = "\x93NUMPY"

const (
	// align is what the offset of the data is a multiple of.
	align = 64
	// maxHeader is how long a header may be: that of an array of numbers is much shorter.
	maxHeader = 1 << 16
	// maxDims is how many dimensions NumPy's arrays have at most.
	maxDims = 64
)

// ErrFormat says that a file is not a .npy file, or one of a kind that package npy does not read.
var ErrFormat = errors.New("not a .npy file of numbers")

// A Header says what array a file has.
type Header struct {
	// Type is that of the elements, as NumPy writes it: <, > or | (for none) for the byte order, the letter
	// b, i, u, f or c, and the number of bytes.
	Type    string
	Columns bool // the first index changes fastest ("Fortran order"), not the last
	Shape   []int
}

// Size returns the number of elements, and the bytes of one.
func (h Header) size() (elements, bytes int, err error) {
	if len(h.Shape) > maxDims {
		return 0, 0, fmt.Errorf("%w: %d dimensions", ErrFormat, len(h.Shape))
	}
	if bytes, err = bytesOf(h.Type); err != nil {
		return 0, 0, err
	}
	elements = 1
	empty := false
	for _, n := range h.Shape {
		switch {
		case n < 0:
			return 0, 0, fmt.Errorf("%w: the shape %v", ErrFormat, h.Shape)
		case n == 0:
			empty = true
		case elements > math.MaxInt/2/bytes/n:
			return 0, 0, fmt.Errorf("%w: the shape %v is too large", ErrFormat, h.Shape)
		default:
			elements *= n
		}
	}
	if empty {
		elements = 0
	}
	return elements, bytes, nil
}

// bytesOf returns the size of an element of a type.
func bytesOf(kind string) (int, error) {
	if len(kind) >= 3 && strings.IndexByte("<>|=", kind[0]) >= 0 {
		n, err := strconv.Atoi(kind[2:])
		sizes := map[byte][]int{'b': {1}, 'i': {1, 2, 4, 8}, 'u': {1, 2, 4, 8}, 'f': {4, 8}, 'c': {8, 16}}
		for _, size := range sizes[kind[1]] {
			if err == nil && n == size && (n == 1 || kind[0] != '|') {
				return n, nil
			}
		}
	}
	return 0, fmt.Errorf("%w: elements of the type %.40q", ErrFormat, kind)
}

// TypeOf returns how NumPy writes a Go type, in little-endian order: a boolean, an integer, a floating-point
// or a complex number.
func TypeOf[T any]() (string, error) {
	t := reflect.TypeFor[T]()
	order := "<"
	if t.Size() == 1 {
		order = "|"
	}
	letter := ""
	switch k := t.Kind(); {
	case k == reflect.Bool:
		letter = "b"
	case k >= reflect.Int && k <= reflect.Int64:
		letter = "i"
	case k >= reflect.Uint && k <= reflect.Uint64:
		letter = "u"
	case k == reflect.Float32 || k == reflect.Float64:
		letter = "f"
	case k == reflect.Complex64 || k == reflect.Complex128:
		letter = "c"
	default:
		return "", fmt.Errorf("%w: NumPy has no type for %v", ErrFormat, t)
	}
	return fmt.Sprint(order, letter, t.Size()), nil
}

// Append appends the header to b: what comes before the data. Its length is a multiple of 64.
func (h Header) Append(b []byte) ([]byte, error) {
	if _, _, err := h.size(); err != nil {
		return b, err
	}
	var shape strings.Builder
	for i, n := range h.Shape {
		if i > 0 {
			shape.WriteString(" ")
		}
		fmt.Fprintf(&shape, "%d,", n)
	}
	list := shape.String()
	if len(h.Shape) > 1 {
		list = strings.TrimSuffix(list, ",")
	}
	order := "False"
	if h.Columns {
		order = "True"
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }", h.Type, order, list)
	fixed := len(magic) + 2 + 2
	rest := (fixed+len(text)+1+align-1)/align*align - fixed
	b = append(b, magic...)
	b = append(b, 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(rest))
	b = append(b, text...)
	for range rest - len(text) - 1 {
		b = append(b, ' ')
	}
	return append(b, '\n'), nil
}

// ReadHeader reads a header, of the versions 1 to 3 of the format. length is the offset of the data.
func ReadHeader(r io.Reader) (h Header, length int64, err error) {
	fixed := make([]byte, len(magic)+2)
	if _, err := io.ReadFull(r, fixed); err != nil {
		return h, 0, noHeader(err)
	}
	if string(fixed[:len(magic)]) != magic {
		return h, 0, fmt.Errorf("%w: it does not begin with %q", ErrFormat, magic)
	}
	major := fixed[len(magic)]
	if major < 1 || major > 3 {
		return h, 0, fmt.Errorf("%w: version %d of the format", ErrFormat, major)
	}
	size := make([]byte, 4)
	used := size
	if major == 1 {
		used = size[:2]
	}
	if _, err := io.ReadFull(r, used); err != nil {
		return h, 0, noHeader(err)
	}
	n := binary.LittleEndian.Uint32(size)
	if n > maxHeader {
		return h, 0, fmt.Errorf("%w: a header of %d bytes", ErrFormat, n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return h, 0, noHeader(err)
	}
	if h, err = parse(string(text)); err != nil {
		return Header{}, 0, err
	}
	if _, _, err := h.size(); err != nil {
		return Header{}, 0, err
	}
	return h, int64(len(fixed)+len(used)) + int64(n), nil
}

func noHeader(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends in the header", ErrFormat)
	}
	return err
}

// parser takes a Python dictionary apart.
type parser struct{ rest string }

func parse(text string) (h Header, err error) {
	p := parser{text}
	has := map[string]bool{}
	fine := p.take("{")
	for fine && !p.take("}") {
		var key string
		if key, fine = p.text(); !fine || !p.take(":") || has[key] {
			fine = false
			break
		}
		has[key] = true
		switch key {
		case "descr":
			if h.Type, fine = p.text(); !fine {
				return h, fmt.Errorf("%w: elements with fields", ErrFormat)
			}
		case "fortran_order":
			h.Columns = p.take("True")
			fine = h.Columns || p.take("False")
		case "shape":
			h.Shape, fine = p.tuple()
		default:
			fine = false
		}
		if fine && !p.take(",") {
			fine = p.take("}")
			break
		}
	}
	p.skip()
	if !fine || p.rest != "" || !has["descr"] || !has["fortran_order"] || !has["shape"] {
		return h, fmt.Errorf("%w: the header %.100q", ErrFormat, text)
	}
	return h, nil
}

func (p *parser) skip() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

func (p *parser) take(token string) bool {
	p.skip()
	rest, is := strings.CutPrefix(p.rest, token)
	p.rest = rest
	return is
}

// text takes a string without escapes.
func (p *parser) text() (string, bool) {
	for _, quote := range []string{"'", `"`} {
		if p.take(quote) {
			text, rest, is := strings.Cut(p.rest, quote)
			p.rest = rest
			return text, is && !strings.ContainsAny(text, "\\\n")
		}
	}
	return "", false
}

// tuple takes numbers in parentheses.
func (p *parser) tuple() (list []int, is bool) {
	if !p.take("(") {
		return nil, false
	}
	list = []int{}
	for !p.take(")") {
		digits := len(p.rest) - len(strings.TrimLeft(p.rest, "0123456789"))
		n, err := strconv.Atoi(p.rest[:digits])
		if err != nil {
			return nil, false
		}
		list = append(list, n)
		p.rest = p.rest[digits:]
		p.take("L") // as Python 2 writes a long integer
		if !p.take(",") {
			return list, p.take(")")
		}
	}
	return list, true
}
