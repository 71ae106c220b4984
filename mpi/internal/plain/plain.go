// Package plain tells which Go types are of fixed size without pointers, so that their memory means the same
// to another process.
package plain

import "reflect"

// Pointer returns a type in t that refers to other memory, or nil.
func Pointer(t reflect.Type) reflect.Type {
	switch k := t.Kind(); {
	case k >= reflect.Bool && k <= reflect.Complex128 && k != reflect.Uintptr:
		return nil
	case k == reflect.Array:
		return Pointer(t.Elem())
	case k == reflect.Struct:
		for i := range t.NumField() {
			if bad := Pointer(t.Field(i).Type); bad != nil {
				return bad
			}
		}
		return nil
	}
	return t
}
