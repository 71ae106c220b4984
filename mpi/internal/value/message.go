package value

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/plain"
)

// A message of SendValue is the word, the encoded value, and one more byte if the length would be even: so no
// receive of elements of an even size takes it.
const WordSize = 8

// Message makes the message of a value.
func Message[T any](v *T) ([]byte, error) {
	b, err := Encode(v, WordSize)
	if err != nil {
		return nil, err
	}
	w := Of[T]().Word
	if len(b)%2 == 0 {
		b, w = append(b, 0), w|padded
	}
	binary.LittleEndian.PutUint64(b, uint64(w))
	return b, nil
}

// Open takes a value out of its message.
func Open[T any](b []byte, v *T) error {
	var w Word
	if len(b) >= WordSize && len(b)%2 == 1 {
		w = Word(binary.LittleEndian.Uint64(b))
	}
	if form := w.Form(); form < Memory || form > Gob {
		return fmt.Errorf("%w: the message holds no value: it was not sent by SendValue or its like",
			plain.ErrType)
	}
	if err := Of[T]().Check(w, reflect.TypeFor[T]()); err != nil {
		return err
	}
	if b = b[WordSize:]; w&padded != 0 {
		b = b[:len(b)-1]
	}
	return Decode(b, v)
}

// Header goes before the bytes of a value: their number and the value's word. The word may say that the
// bytes are the text of an error, because the value could not be encoded.
type Header [2]uint64

func (h Header) word() Word { return Word(h[1]) }

// Lengths gives the lengths of values and their sum, which make this rank allocate memory. They are at most
// most; counts may be nil.
func Lengths(headers []Header, counts []int, most int) (total int, err error) {
	for i, h := range headers {
		if h[0] > uint64(most-total) {
			return 0, fmt.Errorf("values of more bytes than this machine has memory: %d, after %d", h[0],
				total)
		}
		total += int(h[0])
		if counts != nil {
			counts[i] = int(h[0])
		}
	}
	return total, nil
}

// Failure is the error of a rank whose value could not be encoded.
func (h Header) Failure(rank int, b []byte) error {
	if h.word().Form() != Failure {
		return nil
	}
	return fmt.Errorf("%w: rank %d: %s", plain.ErrType, rank, b)
}

// Encoded encodes a value. The header says if it cannot be encoded.
func Encoded[T any](v *T) ([]byte, Header) {
	b, err := Encode(v, 0)
	if err != nil {
		return refusal(err)
	}
	return b, Header{uint64(len(b)), uint64(Of[T]().Word)}
}

// refusal takes the place of a value.
func refusal(err error) ([]byte, Header) {
	b := []byte(err.Error())
	var why *Error
	if errors.As(err, &why) {
		b = []byte(why.text())
	}
	return b, Header{uint64(len(b)), uint64(Failure)}
}

// Refusals takes the place of a value for each rank.
func Refusals(size int, err error) (headers []Header, all []byte) {
	b, h := refusal(err)
	for range size {
		headers, all = append(headers, h), append(all, b...)
	}
	return headers, all
}

// EncodedAll encodes values, and concatenates them.
func EncodedAll[T any](in []T) (headers []Header, all []byte, err error) {
	for i := range in {
		b, err := Encode(&in[i], 0)
		if err != nil {
			return nil, nil, err
		}
		headers = append(headers, Header{uint64(len(b)), uint64(Of[T]().Word)})
		all = append(all, b...)
	}
	return headers, all, nil
}

// Received decodes the value of a rank.
func Received[T any](h Header, rank int, b []byte, v *T) error {
	if err := h.Failure(rank, b); err != nil {
		return err
	}
	err := Of[T]().Check(h.word(), reflect.TypeFor[T]())
	if err == nil {
		err = Decode(b, v)
	}
	if err != nil {
		return fmt.Errorf("value of rank %d: %w", rank, err)
	}
	return nil
}

// AllReceived decodes the values of all ranks.
func AllReceived[T any](headers []Header, b []byte) ([]T, error) {
	all := make([]T, len(headers))
	for rank, h := range headers {
		if err := Received(h, rank, b[:h[0]], &all[rank]); err != nil {
			return nil, err
		}
		b = b[h[0]:]
	}
	return all, nil
}

func HeaderBytes(headers []Header) []byte {
	if len(headers) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(headers))),
		len(headers)*int(unsafe.Sizeof(headers[0])))
}
