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

// lastKnown reports whether T is the element type of about its size that was found good last, and most often
// is the next one too.
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
