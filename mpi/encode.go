package mpi

import (
	"bytes"
	"encoding"
	"encoding/gob"
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// encode turns a value into bytes: its memory, if it has a fixed size and no pointers, else its gob.
func encode[T any](v *T) ([]byte, error) {
	if checkElement[T]() == nil {
		return slices.Clone(valueBytes(v)), nil
	}
	kind := kindOf(reflect.TypeFor[T]())
	if kind.err != nil {
		return nil, kind.err
	}
	if kind.recursive {
		if err := checkDepth(reflect.ValueOf(v), 0); err != nil {
			return nil, err
		}
	}
	b, err := gobOf(v)
	if err != nil {
		return nil, &encodeError{reflect.TypeFor[T](), err.Error()}
	}
	return b, nil
}

// gobOf encodes a value. gob panics where a value's own method does, and at a nil pointer.
func gobOf[T any](v *T) (_ []byte, err error) {
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
	err = gob.NewEncoder(&b).Encode(value)
	return b.Bytes(), err
}

// decode is the opposite of encode.
func decode[T any](b []byte, v *T) error {
	if checkElement[T]() == nil {
		memory := valueBytes(v)
		if len(b) != len(memory) {
			return fmt.Errorf("%w: %d bytes are no %v, which has %d", ErrType, len(b), reflect.TypeFor[T](),
				len(memory))
		}
		copy(memory, b)
		return nil
	}
	if kind := kindOf(reflect.TypeFor[T]()); kind.err != nil {
		return kind.err
	}
	var fresh T // gob leaves alone what is zero in the message
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&fresh); err != nil {
		return fmt.Errorf("%w: the message holds no %v: %w", ErrType, reflect.TypeFor[T](), err)
	}
	*v = fresh
	return nil
}

// encodeError is why a value cannot be encoded.
type encodeError struct {
	t   reflect.Type
	why string
}

func (e *encodeError) Error() string { return fmt.Sprintf("%v: %s", ErrType, e.text()) }

func (e *encodeError) Unwrap() error { return ErrType }

// text is the error without its kind.
func (e *encodeError) text() string { return fmt.Sprintf("%v: %s", e.t, e.why) }

// valueKind is what is known of a type whose values travel by gob.
type valueKind struct {
	err       error // why its values would not arrive as they were sent
	recursive bool  // a value may contain values of a type that contains it
}

var valueKinds sync.Map // valueKind by reflect.Type

func kindOf(t reflect.Type) valueKind {
	if k, ok := valueKinds.Load(t); ok {
		return k.(valueKind)
	}
	w := typeWalk{under: map[reflect.Type]bool{}}
	k := valueKind{}
	if why := w.lost(t, ""); why != "" {
		k.err = &encodeError{t, why}
	}
	k.recursive = w.recursive
	valueKinds.Store(t, k)
	return k
}

// typeWalk looks at the parts of a type.
type typeWalk struct {
	under     map[reflect.Type]bool // the types that contain the present one
	recursive bool
}

var encoders = []reflect.Type{
	reflect.TypeFor[gob.GobEncoder](), reflect.TypeFor[encoding.BinaryMarshaler](),
	reflect.TypeFor[encoding.TextMarshaler](),
}

// lost says what of a value gob would leave out or refuse; "" if nothing. path leads to the part.
func (w *typeWalk) lost(t reflect.Type, path string) string {
	if w.under[t] {
		w.recursive = true
		return ""
	}
	for _, e := range encoders {
		if t.Implements(e) || reflect.PointerTo(t).Implements(e) {
			return ""
		}
	}
	w.under[t] = true
	defer delete(w.under, t)
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Uintptr:
		return fmt.Sprintf("%s is a %s, which means nothing to another process", orItself(path), t.Kind())
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
		return &encodeError{v.Type(), fmt.Sprintf("nested more than %d deep: does it refer to itself?",
			maxDepth)}
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
