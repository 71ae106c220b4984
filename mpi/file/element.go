package file

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/plain"
)

// maxFields is how many numbers an element may have whose byte order is changed.
const maxFields = 1 << 16

// checked are the element types that are known to be fine.
var checked sync.Map

// checkElement refuses an element type with pointers, which mean nothing in a file.
func checkElement(t reflect.Type) error {
	if _, fine := checked.Load(t); fine {
		return nil
	}
	if _, bad := plain.Pointer(t); bad != nil {
		return fmt.Errorf("%w: %v has a %v, which means nothing in a file", mpi.ErrType, t, bad)
	}
	checked.Store(t, true)
	return nil
}

// number is a number of more than one byte in an element.
type number struct{ at, size int }

// numbers lists the numbers of more than one byte in an element of a type without pointers, from an offset
// on.
func numbers(list []number, t reflect.Type, at int) ([]number, error) {
	size := int(t.Size())
	switch t.Kind() {
	case reflect.Array:
		for i := range t.Len() {
			n := len(list)
			var err error
			if list, err = numbers(list, t.Elem(), at+i*int(t.Elem().Size())); err != nil {
				return nil, err
			}
			if len(list) == n {
				break // bytes
			}
		}
	case reflect.Struct:
		for i := range t.NumField() {
			var err error
			if list, err = numbers(list, t.Field(i).Type, at+int(t.Field(i).Offset)); err != nil {
				return nil, err
			}
		}
	case reflect.Complex64, reflect.Complex128:
		list = append(list, number{at, size / 2}, number{at + size/2, size / 2})
	default:
		if size > 1 {
			list = append(list, number{at, size})
		}
	}
	if len(list) > maxFields {
		return nil, fmt.Errorf("%w: an element has more than %d numbers to change the byte order of",
			mpi.ErrType, maxFields)
	}
	return list, nil
}

// swap changes the byte order of the numbers in elements of a size.
func swap(elements []byte, size int, list []number) {
	for ; len(elements) > 0; elements = elements[size:] {
		for _, n := range list {
			slices.Reverse(elements[n.at:][:n.size])
		}
	}
}
