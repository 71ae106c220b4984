package pool

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/plain"
)

// Tags of the messages between rank 0 and workers.
const (
	tagHello   = iota // to rank 0: how many tasks at once
	tagTasks          // to a worker: a batch
	tagResults        // to rank 0: those of a batch
	tagEnd            // to a worker: no more tasks
	tagCancel         // to a worker: no more tasks, and those that it has are not wanted
	tagBye            // to rank 0: nothing more comes
)

// A batch is tasks that follow one another, or what has come of them.
type batch struct {
	first  int   // index of the first task
	count  int   //
	micros int64 // how long they took
}

const headerSize = 4 * 8

func (b batch) header(values int) []byte {
	h := binary.LittleEndian.AppendUint64(nil, uint64(b.first))
	h = binary.LittleEndian.AppendUint64(h, uint64(b.count))
	h = binary.LittleEndian.AppendUint64(h, uint64(b.micros))
	return binary.LittleEndian.AppendUint64(h, uint64(values))
}

// failure is the error of a task of a batch.
type failure struct {
	At   int
	Text string
}

var errMessage = errors.New("a message of the pool that is not one")

// encode returns the message about a batch, in parts.
func encode[V any](b batch, values []V, failures []failure) ([][]byte, error) {
	body, err := marshal(values)
	if err != nil {
		return nil, err
	}
	parts := [][]byte{b.header(len(body)), body}
	if len(failures) > 0 {
		errs, err := marshalGob(failures)
		if err != nil {
			return nil, err
		}
		parts = append(parts, errs)
	}
	return parts, nil
}

// decode is the other way.
func decode[V any](message []byte) (b batch, values []V, failures []failure, err error) {
	if len(message) < headerSize {
		return b, nil, nil, errMessage
	}
	word := func(i int) int { return int(binary.LittleEndian.Uint64(message[8*i:])) }
	b = batch{word(0), word(1), int64(word(2))}
	n, rest := word(3), message[headerSize:]
	if n < 0 || n > len(rest) || b.count < 0 || b.count > maxBatch {
		return b, nil, nil, errMessage
	}
	if n == 0 && len(rest) > 0 { // nothing but failures
		values = make([]V, b.count)
	} else {
		values, err = unmarshal[V](rest[:n], b.count)
	}
	if err == nil && n < len(rest) {
		err = gob.NewDecoder(bytes.NewReader(rest[n:])).Decode(&failures)
	}
	for _, f := range failures {
		if f.At < 0 || f.At >= b.count {
			err = errMessage
		}
	}
	return b, values, failures, err
}

// marshal encodes values: as memory, if the type allows it.
func marshal[V any](values []V) ([]byte, error) {
	if _, part := plain.Pointer(reflect.TypeFor[V]()); part == nil {
		return memory(values), nil
	}
	return marshalGob(values)
}

func marshalGob(v any) ([]byte, error) {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(v); err != nil {
		return nil, fmt.Errorf("%w: %w", mpi.ErrType, err)
	}
	return b.Bytes(), nil
}

func unmarshal[V any](b []byte, count int) (values []V, err error) {
	if _, part := plain.Pointer(reflect.TypeFor[V]()); part != nil {
		err = gob.NewDecoder(bytes.NewReader(b)).Decode(&values)
	} else {
		values = make([]V, count)
		if len(memory(values)) != len(b) {
			return nil, errMessage
		}
		copy(memory(values), b)
	}
	if err == nil && len(values) != count {
		err = errMessage
	}
	return values, err
}

// memory is that of values.
func memory[V any](values []V) []byte {
	var v V
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(v)))
}

// receive receives a message of any length.
func receive(c *mpi.Comm, from int) (b []byte, st mpi.Status, err error) {
	m, st, err := mpi.Mprobe(c, from, mpi.AnyTag)
	if err != nil {
		return nil, st, err
	}
	b = make([]byte, st.Bytes())
	st, err = mpi.Mrecv(&m, b)
	return b, st, err
}
