// Package plain determines which Go types have a fixed size and no pointers, so that their memory means the
// same to another process.
package plain

import (
	"errors"
	"reflect"
)

// ErrType is the error of an element type that cannot be sent, or of a message of another type.
var ErrType = errors.New("invalid element type")

// Pointer returns the first part of t that refers to other memory: the path to it and its type, which is nil
// if there is none.
func Pointer(t reflect.Type) (path string, part reflect.Type) {
	switch k := t.Kind(); {
	// an address means nothing elsewhere
	case k >= reflect.Bool && k <= reflect.Complex128 && k != reflect.Uintptr,
		k == reflect.Array && t.Len() == 0:
		return "", nil
	case k == reflect.Array:
		if path, part = Pointer(t.Elem()); part != nil {
			path = "[]" + path
		}
		return path, part
	case k == reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if path, part = Pointer(f.Type); part != nil {
				return "." + f.Name + path, part
			}
		}
		return "", nil
	}
	return "", t
}

// IsFixed reports whether values of a type are the same to another process as their memory, which is not
// empty.
func IsFixed(t reflect.Type) bool {
	_, part := Pointer(t)
	return part == nil && t.Size() > 0
}

// PathOrIt returns the path to a part of a value, in words.
func PathOrIt(path string) string {
	if path == "" {
		return "it"
	}
	return path
}
