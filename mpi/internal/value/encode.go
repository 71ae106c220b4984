package value

import (
	"bytes"
	"encoding"
	"encoding/gob"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/plain"
)

// Encode turns a value into bytes: its memory or that of its elements, if they have a fixed size and no
// pointers, else its gob. The bytes begin after room for a header.
func Encode[T any](v *T, room int) ([]byte, error) {
	t := Of[T]()
	switch t.Word.Form() {
	case Memory:
		b := Bytes(v)
		return append(make([]byte, room, room+len(b)+1), b...), nil
	case Slice:
		b := elementBytes(v)
		return append(make([]byte, room, room+len(b)+1), b...), nil
	}
	if t.err != nil {
		return nil, t.err
	}
	if t.recursive {
		if err := checkDepth(reflect.ValueOf(v), 0); err != nil {
			return nil, err
		}
	}
	b, err := gobOf(v, room)
	if err != nil {
		return nil, &Error{reflect.TypeFor[T](), err.Error()}
	}
	return b, nil
}

// elementBytes is the memory of the elements of a slice.
func elementBytes[T any](v *T) []byte {
	// a slice of any element type has the same header
	s := *(*[]byte)(unsafe.Pointer(v))
	return unsafe.Slice(unsafe.SliceData(s), len(s)*int(reflect.TypeFor[T]().Elem().Size()))
}

// gobOf encodes a value. gob panics if a value's own method does, and at a nil pointer.
func gobOf[T any](v *T, room int) (_ []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	var value any = v // a pointer keeps an interface type
	if reflect.TypeFor[T]().Kind() != reflect.Interface {
		value = *v
	}
	var b bytes.Buffer
	b.Write(make([]byte, room))
	err = gob.NewEncoder(&b).Encode(value)
	return b.Bytes(), err
}

// Decode is the opposite of Encode.
func Decode[T any](b []byte, v *T) error {
	t := Of[T]()
	switch t.Word.Form() {
	case Memory:
		memory := Bytes(v)
		if len(b) != len(memory) {
			return fmt.Errorf("%w: %d bytes are no %v, which has %d", plain.ErrType, len(b),
				reflect.TypeFor[T](), len(memory))
		}
		copy(memory, b)
		return nil
	case Slice:
		slice := reflect.TypeFor[T]()
		size := int(slice.Elem().Size())
		if len(b)%size != 0 {
			return fmt.Errorf("%w: %d bytes are no %v, whose elements have %d", plain.ErrType, len(b),
				slice, size)
		}
		n := len(b) / size
		reflect.ValueOf(v).Elem().Set(reflect.MakeSlice(slice, n, n))
		copy(elementBytes(v), b)
		return nil
	}
	if t.err != nil {
		return t.err
	}
	var fresh T // gob does not set fields that are zero in the message
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&fresh); err != nil {
		return fmt.Errorf("%w: the message holds no %v: %w", plain.ErrType, reflect.TypeFor[T](), err)
	}
	*v = fresh
	return nil
}

// Error is why a value cannot be encoded.
type Error struct {
	t   reflect.Type
	why string
}

func (e *Error) Error() string { return fmt.Sprintf("%v: %s", plain.ErrType, e.text()) }

func (e *Error) Unwrap() error { return plain.ErrType }

// text is the error without its kind.
func (e *Error) text() string { return fmt.Sprintf("%v: %s", e.t, e.why) }

// typeWalk looks at the parts of a type.
type typeWalk struct {
	under     map[reflect.Type]bool // the types that contain the present one
	recursive bool
}

var encoders = []reflect.Type{
	reflect.TypeFor[gob.GobEncoder](), reflect.TypeFor[encoding.BinaryMarshaler](),
	reflect.TypeFor[encoding.TextMarshaler](),
}

// encodesItself reports whether gob leaves it to a type how its values are encoded.
func encodesItself(t reflect.Type) bool {
	for _, e := range encoders {
		if t.Implements(e) || reflect.PointerTo(t).Implements(e) {
			return true
		}
	}
	return false
}

// lost returns the part of a value that gob would omit or refuse; "" for none. path leads to the part.
func (w *typeWalk) lost(t reflect.Type, path string) string {
	if w.under[t] {
		w.recursive = true
		return ""
	}
	if encodesItself(t) {
		return ""
	}
	w.under[t] = true
	defer delete(w.under, t)
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Uintptr:
		return fmt.Sprintf("%s is a %s, which means nothing to another process", plain.PathOrIt(path),
			t.Kind())
	case reflect.Interface:
		w.recursive = true // who knows
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return w.lost(t.Elem(), path)
	case reflect.Map:
		if why := w.lost(t.Key(), path); why != "" {
			return why
		}
		return w.lost(t.Elem(), path)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() {
				return fmt.Sprintf("%s.%s is not exported and would be lost", path, f.Name)
			}
			if why := w.lost(f.Type, path+"."+f.Name); why != "" {
				return why
			}
		}
	}
	return ""
}

// maxDepth bounds the nesting of a value. A value that refers to itself is nested without end.
const maxDepth = 10_000

func checkDepth(v reflect.Value, depth int) error {
	if depth > maxDepth {
		return &Error{v.Type(), fmt.Sprintf("nested more than %d deep: does it refer to itself?", maxDepth)}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return checkDepth(v.Elem(), depth+1)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := checkDepth(v.Index(i), depth+1); err != nil {
				return err
			}
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			if err := checkDepth(entries.Value(), depth+1); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if err := checkDepth(v.Field(i), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// Bytes returns the memory of a value.
func Bytes[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }
