package mpi

import (
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"
)

// bytesOf is the memory of buf. It refuses element types that have pointers.
func bytesOf[T any](buf []T) ([]byte, error) {
	if typeOf[T]() != known.last.Load() {
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

// typeOf identifies a type: the word by which an interface knows it.
func typeOf[T any]() *byte {
	key := any((*T)(nil))
	return *(**byte)(unsafe.Pointer(&key))
}

// sizeOf is the size of one element in bytes.
func sizeOf[T any]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}

// known remembers the element types that have been looked at: nil for one that may be sent. Readers take no lock.
var known struct {
	last  atomic.Pointer[byte] // the type that was found good last, and most often is the next one too
	mu    sync.Mutex
	types atomic.Pointer[map[any]error]
}

// checkElement refuses a type that cannot be sent. The common ones are known at compile time; others are looked at once and remembered.
func checkElement[T any]() error {
	key := any((*T)(nil))
	switch key.(type) {
	case *byte, *int8, *int16, *uint16, *int32, *uint32, *int64, *uint64, *int, *uint, *float32, *float64,
		*complex64, *complex128, *bool:
		known.last.Store(typeOf[T]())
		return nil
	}
	if m := known.types.Load(); m != nil {
		if err, ok := (*m)[key]; ok {
			if err == nil {
				known.last.Store(typeOf[T]())
			}
			return err
		}
	}
	return learnElement(key)
}

func learnElement(key any) error {
	known.mu.Lock()
	defer known.mu.Unlock()
	t := reflect.TypeOf(key).Elem()
	var err error
	if path, kind := pointerIn(t); kind != reflect.Invalid {
		err = fmt.Errorf("%w: %s: %s is a %s; elements must have a fixed size and no pointers", ErrType, t, path, kind)
	} else if t.Size() == 0 {
		err = fmt.Errorf("%w: %s has no bytes", ErrType, t)
	}
	next := map[any]error{key: err}
	if m := known.types.Load(); m != nil {
		for k, v := range *m {
			next[k] = v
		}
	}
	known.types.Store(&next)
	return err
}

// pointerIn finds the first part of t that holds a pointer: its path and kind; Invalid if there is none.
func pointerIn(t reflect.Type) (string, reflect.Kind) {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
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
	return "it", t.Kind() // uintptr too: an address means nothing elsewhere
}
