package value

import (
	"fmt"
	"hash/fnv"
	"reflect"
	"sync"

	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/plain"
)

// Form is how a value travels.
type Form uint8

const (
	Memory  Form = iota + 1 // the memory of a type of fixed size without pointers
	Slice                   // the elements of a slice, of such a type
	Gob                     // encoding/gob
	Failure                 // the text of the error in place of a value
)

// Word goes before each value and says what it is: its form, its kind for messages, the size of the
// value or the element, and a hash of the type.
type Word uint64

const (
	padded    = 1 << 7 // a byte follows the value
	kindShift = 8
	sizeShift = 16
	hashShift = 32
	KindMask  = Word(0xff) << kindShift
	maxSize   = 1<<16 - 1
)

// Form returns the form of the value.
func (w Word) Form() Form { return Form(w &^ padded & 0xff) }

// sameType reports whether two words are those of one type. An int may stand for an int64.
func (w Word) sameType(v Word) bool { return (w^v)&^(KindMask|padded) == 0 }

// describe describes a value as far as its word does.
func (w Word) describe() string {
	kind, size := reflect.Kind(w>>kindShift&0xff), int(w>>sizeShift&maxSize)
	of := kind.String()
	if kind == reflect.Struct || kind == reflect.Array {
		if of = fmt.Sprintf("%v of %d bytes", kind, size); size == maxSize {
			of = fmt.Sprintf("%v of %d bytes or more", kind, size)
		}
	}
	switch w.Form() {
	case Memory:
		return "of type " + of
	case Slice:
		return "a slice of " + of
	case Gob:
		return fmt.Sprintf("of another %v type, in encoding/gob", kind)
	}
	return "not known"
}

// Type describes a type whose values are sent.
type Type struct {
	Word    Word
	Element *check.Element // for checking mode

	err       error // why its values would not arrive as they were sent
	recursive bool  // a value may contain values of a type that contains it
}

var types sync.Map // *Type by reflect.Type

// Of returns the Type of T.
func Of[T any]() *Type {
	t := reflect.TypeFor[T]()
	if v, ok := types.Load(t); ok {
		return v.(*Type)
	}
	v, _ := types.LoadOrStore(t, newType(t))
	return v.(*Type)
}

func newType(t reflect.Type) *Type {
	v := &Type{}
	switch {
	case plain.IsFixed(t):
		v.Word = newWord(Memory, t, check.ElementOf(t).Layout)
	case t.Kind() == reflect.Slice && !encodesItself(t) && plain.IsFixed(t.Elem()):
		v.Word = newWord(Slice, t.Elem(), check.ElementOf(t.Elem()).Layout)
	default:
		w := typeWalk{under: map[reflect.Type]bool{}}
		if why := w.lost(t, ""); why != "" {
			v.err = &Error{t, why}
		}
		v.recursive = w.recursive
		h := fnv.New32a()
		h.Write([]byte(t.String()))
		v.Word = newWord(Gob, t, h.Sum32())
	}
	v.Element = check.ValueOf(t.String(), uint32(v.Word>>hashShift)^uint32(v.Word.Form()))
	return v
}

func newWord(form Form, t reflect.Type, hash uint32) Word {
	size := Word(0)
	if form != Gob {
		size = Word(min(t.Size(), maxSize))
	}
	return Word(form) | Word(t.Kind())<<kindShift | size<<sizeShift |
		Word(hash)<<hashShift
}

// Check refuses a value of another type.
func (v *Type) Check(w Word, t reflect.Type) error {
	if w.sameType(v.Word) {
		return nil
	}
	return fmt.Errorf("%w: the value sent is %s, and not of type %v", plain.ErrType, w.describe(), t)
}
