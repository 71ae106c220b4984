package mpi

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"reflect"
	"sync"

	"github.com/weft-mpi/weft/mpi/internal/check"
)

// valueForm is how a value travels.
type valueForm uint8

const (
	valueMemory valueForm = iota + 1 // the memory of a type of fixed size without pointers
	valueSlice                       // the elements of a slice, of such a type
	valueGob                         // encoding/gob
	valueError                       // the text of an error: why there is no value
)

// valueWord goes before each value and says what it is: its form, its kind for messages, the size of the
// value or the element, and a hash of the type.
type valueWord uint64

const (
	wordPadded    = 1 << 7 // a byte follows the value
	wordKindShift = 8
	wordSizeShift = 16
	wordHashShift = 32
	wordKindMask  = valueWord(0xff) << wordKindShift
	maxWordSize   = 1<<16 - 1
)

func (w valueWord) form() valueForm { return valueForm(w &^ wordPadded & 0xff) }

// sameType reports whether two words are those of one type. An int may stand for an int64.
func (w valueWord) sameType(v valueWord) bool { return (w^v)&^(wordKindMask|wordPadded) == 0 }

// describe says what a value is, as far as its word tells.
func (w valueWord) describe() string {
	kind, size := reflect.Kind(w>>wordKindShift&0xff), int(w>>wordSizeShift&maxWordSize)
	of := kind.String()
	if kind == reflect.Struct || kind == reflect.Array {
		if of = fmt.Sprintf("%v of %d bytes", kind, size); size == maxWordSize {
			of = fmt.Sprintf("%v of %d bytes or more", kind, size)
		}
	}
	switch w.form() {
	case valueMemory:
		return "of type " + of
	case valueSlice:
		return "a slice of " + of
	case valueGob:
		return fmt.Sprintf("of another %v type, in encoding/gob", kind)
	}
	return "not known"
}

// valueType is what is known of a type whose values are sent.
type valueType struct {
	word      valueWord
	err       error          // why its values would not arrive as they were sent
	recursive bool           // a value may contain values of a type that contains it
	element   *check.Element // for checking mode
}

var valueTypes sync.Map // *valueType by reflect.Type

func valueTypeOf[T any]() *valueType {
	t := reflect.TypeFor[T]()
	if v, ok := valueTypes.Load(t); ok {
		return v.(*valueType)
	}
	v, _ := valueTypes.LoadOrStore(t, newValueType(t))
	return v.(*valueType)
}

func newValueType(t reflect.Type) *valueType {
	v := &valueType{}
	switch {
	case isFixed(t):
		v.word = newValueWord(valueMemory, t, check.ElementOf(t).Layout)
	case t.Kind() == reflect.Slice && !encodesItself(t) && isFixed(t.Elem()):
		v.word = newValueWord(valueSlice, t.Elem(), check.ElementOf(t.Elem()).Layout)
	default:
		w := typeWalk{under: map[reflect.Type]bool{}}
		if why := w.lost(t, ""); why != "" {
			v.err = &encodeError{t, why}
		}
		v.recursive = w.recursive
		h := fnv.New32a()
		h.Write([]byte(t.String()))
		v.word = newValueWord(valueGob, t, h.Sum32())
	}
	v.element = check.ValueOf(t.String(), uint32(v.word>>wordHashShift)^uint32(v.word.form()))
	return v
}

// isFixed reports whether values of a type travel as their memory.
func isFixed(t reflect.Type) bool {
	_, kind := pointerIn(t)
	return kind == reflect.Invalid && t.Size() > 0
}

func newValueWord(form valueForm, t reflect.Type, hash uint32) valueWord {
	size := valueWord(0)
	if form != valueGob {
		size = valueWord(min(t.Size(), maxWordSize))
	}
	return valueWord(form) | valueWord(t.Kind())<<wordKindShift | size<<wordSizeShift |
		valueWord(hash)<<wordHashShift
}

// check refuses a value of another type.
func (v *valueType) check(w valueWord, t reflect.Type) error {
	if w.sameType(v.word) {
		return nil
	}
	return fmt.Errorf("%w: the value sent is %s, and not of type %v", ErrType, w.describe(), t)
}

// A message of SendValue is the word, the encoded value, and one more byte if the length would be even: so no
// receive of elements of an even size takes it.
const valueWordSize = 8

// valueMessage makes the message of a value.
func valueMessage[T any](v *T) ([]byte, error) {
	b, err := encode(v, valueWordSize)
	if err != nil {
		return nil, err
	}
	w := valueTypeOf[T]().word
	if len(b)%2 == 0 {
		b, w = append(b, 0), w|wordPadded
	}
	binary.LittleEndian.PutUint64(b, uint64(w))
	return b, nil
}

// openValueMessage takes a value out of its message.
func openValueMessage[T any](b []byte, v *T) error {
	var w valueWord
	if len(b) >= valueWordSize && len(b)%2 == 1 {
		w = valueWord(binary.LittleEndian.Uint64(b))
	}
	if form := w.form(); form < valueMemory || form > valueGob {
		return fmt.Errorf("%w: the message holds no value: it was not sent by SendValue", ErrType)
	}
	if err := valueTypeOf[T]().check(w, reflect.TypeFor[T]()); err != nil {
		return err
	}
	if b = b[valueWordSize:]; w&wordPadded != 0 {
		b = b[:len(b)-1]
	}
	return decode(b, v)
}
