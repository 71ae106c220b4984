package mpi

import (
	"fmt"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/plain"
)

// bytesOf returns the memory of buf. It refuses element types with pointers.
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

// memory is bytesOf for an element type that has been checked.
func memory[T any](buf []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(buf))), len(buf)*sizeOf[T]())
}

// lastKnown reports whether T is the cached valid element type for its size class. Usually it is.
func lastKnown[T any]() bool { return lastOf[T]() != nil }

// lastOf returns the cache entry of T if lastKnown, else nil.
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

// sizeOf returns the size of one element in bytes.
func sizeOf[T any]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}

// knownType is an element type that has been checked.
type knownType struct {
	typ any   // a nil pointer to the type
	err error // why it cannot be sent; nil if it can
	// its description in checking mode
	element *check.Element
}

// known has the element types that have been checked. Readers take no lock.
var known struct {
	last  [8]atomic.Pointer[knownType] // the last valid one, for each size modulo 8
	mu    sync.Mutex
	types atomic.Pointer[map[any]*knownType] // by typ
}

// checkElement refuses a type that cannot be sent.
func checkElement[T any]() error { return lookElement[T]().err }

// lookElement returns whether a type can be sent. Each type is checked once.
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
	if path, part := plain.Pointer(t); part != nil {
		err = fmt.Errorf("%w: %s: %s is a %s; elements must have a fixed size and no pointers, but the "+
			"calls for values, such as SendValue, take others", ErrType, t, plain.PathOrIt(path), part.Kind())
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
