package mpi

import (
	"fmt"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/check"
)

// bytesOf is the memory of buf. It refuses element types that have pointers.
func bytesOf[T any](buf []T) ([]byte, error) {
	if !lastKnown[T]() {
		if err := checkElement[T](); err != nil {
			return nil, err
		}
	}
	if len(buf) == 0 {
		return nil, nil
	}
	return memory(buf), nil
}

// memory is bytesOf where the element type was looked at before.
func memory[T any](buf []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(buf))), len(buf)*sizeOf[T]())
}

// lastKnown tells whether T is the element type of about its size that was found good last, and most often is
// the next one too.
func lastKnown[T any]() bool { return lastOf[T]() != nil }

// lastOf is what is known of T if lastKnown, else nil.
func lastOf[T any]() *knownType {
	k := known.last[sizeOf[T]()%len(known.last)].Load()
	if k == nil {
		return nil
	}
	if _, same := k.typ.(*T); !same {
		return nil
	}
	return k
}

// sizeOf is the size of one element in bytes.
func sizeOf[T any]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}

// knownType is an element type that has been looked at.
type knownType struct {
	typ any   // a nil pointer to the type
	err error // why it cannot be sent; nil if it can
	// what checking mode tells others of it
	element *check.Element
}

// known remembers the element types that have been looked at. Readers take no lock.
var known struct {
	last  [8]atomic.Pointer[knownType] // one that can be sent, for each size modulo 8
	mu    sync.Mutex
	types atomic.Pointer[map[any]*knownType] // by typ
}

// checkElement refuses a type that cannot be sent.
func checkElement[T any]() error { return lookElement[T]().err }

// lookElement looks at a type. Each is looked at once and remembered.
func lookElement[T any]() *knownType {
	key := any((*T)(nil))
	var k *knownType
	if m := known.types.Load(); m != nil {
		k = (*m)[key]
	}
	if k == nil {
		k = learnElement(key)
	}
	if k.err == nil {
		known.last[sizeOf[T]()%len(known.last)].Store(k)
	}
	return k
}

func learnElement(key any) *knownType {
	known.mu.Lock()
	defer known.mu.Unlock()
	t := reflect.TypeOf(key).Elem()
	var err error
	if path, kind := pointerIn(t); kind != reflect.Invalid {
		err = fmt.Errorf("%w: %s: %s is a %s; elements must have a fixed size and no pointers, but the "+
			"calls for values, such as SendValue, take others", ErrType, t, orItself(path), kind)
	} else if t.Size() == 0 {
		err = fmt.Errorf("%w: %s has no bytes", ErrType, t)
	}
	next := map[any]*knownType{}
	if m := known.types.Load(); m != nil {
		maps.Copy(next, *m)
	}
	k := &knownType{typ: key, err: err}
	if err == nil {
		k.element = check.ElementOf(t)
	}
	next[key] = k
	known.types.Store(&next)
	return k
}

// pointerIn finds the first part of t that holds a pointer: its path and kind; Invalid if there is none.
func pointerIn(t reflect.Type) (string, reflect.Kind) {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint,
		reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64, reflect.Complex64,
		reflect.Complex128:
		return "", reflect.Invalid
	case reflect.Array:
		if t.Len() == 0 {
			return "", reflect.Invalid
		}
		path, kind := pointerIn(t.Elem())
		return "[]" + path, kind
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if path, kind := pointerIn(f.Type); kind != reflect.Invalid {
				return "." + f.Name + path, kind
			}
		}
		return "", reflect.Invalid
	}
	return "", t.Kind() // uintptr too: an address means nothing elsewhere
}

// orItself is the path to a part of a value, in words.
func orItself(path string) string {
	if path == "" {
		return "it"
	}
	return path
}
