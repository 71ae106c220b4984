package mpi

import (
	"errors"
	"fmt"
	"slices"
)

// Key names an attribute: a value that a program or a library keeps with a communicator, one of each Key at
// most (MPI 4.1, 7.7, caching). A library makes a Key once, usually as a package variable, and finds by it
// what it has prepared for a communicator. Attributes belong to this rank alone; no call on them
// communicates. All handles to a communicator share its attributes. Any goroutine may use a Key.
type Key[T any] struct {
	copy    func(T) (T, bool)
	deleted func(T)
}

// NewKey makes a Key (MPI_Comm_create_keyval). Dup and Idup call copy with the value of the attribute, and
// give the new communicator the value that it returns, or no attribute if it returns false; with a nil copy,
// they never do. Other calls that make communicators do not copy attributes. deleted, if it is not nil, is
// called with a value that a communicator no longer has: after Set of another one, Delete or Free, and for
// the world at the beginning of Finalize. Free and Finalize delete the attribute that was set last first.
// Both functions may use the communicator's attributes.
func NewKey[T any](copy func(T) (T, bool), deleted func(T)) *Key[T] {
	return &Key[T]{copy, deleted}
}

// Set sets the attribute of a communicator (MPI_Comm_set_attr).
func (k *Key[T]) Set(c *Comm, v T) error {
	err := c.checkAttributes()
	if err == nil && k == nil {
		err = fmt.Errorf("%w: a Key comes from NewKey", ErrArg)
	}
	if err != nil {
		return c.fail("Key.Set", NoPeer, NoPeer, err)
	}
	before, found, err := c.setAttribute(k, v)
	if err != nil {
		return c.fail("Key.Set", NoPeer, NoPeer, err)
	}
	if found {
		k.wasDeleted(before)
	}
	return nil
}

// Get returns the attribute of a communicator, or false if it has none (MPI_Comm_get_attr). A communicator
// that was freed has no attributes.
func (k *Key[T]) Get(c *Comm) (T, bool) {
	var v T
	if k == nil || c == nil || c.commState == nil {
		return v, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.findAttributeLocked(k)
	if i < 0 {
		return v, false
	}
	v, _ = c.attributes[i].value.(T) // not a T if T is an interface and v is nil
	return v, true
}

// Delete deletes the attribute of a communicator (MPI_Comm_delete_attr), and reports whether it had one.
func (k *Key[T]) Delete(c *Comm) bool {
	if k == nil || c == nil || c.commState == nil {
		return false
	}
	c.mu.Lock()
	i := c.findAttributeLocked(k)
	var v any
	if i >= 0 {
		v = c.attributes[i].value
		c.attributes = slices.Delete(c.attributes, i, i+1)
	}
	c.mu.Unlock()
	if i >= 0 {
		k.wasDeleted(v)
	}
	return i >= 0
}

// attribute is a value of a communicator, with its *Key.
type attribute struct {
	key   attributeKey
	value any
}

// attributeKey is a *Key of any type of values.
type attributeKey interface {
	copied(v any) (any, bool)
	wasDeleted(v any)
}

func (k *Key[T]) copied(v any) (any, bool) {
	if k.copy == nil {
		return nil, false
	}
	value, _ := v.(T)
	return k.copy(value)
}

func (k *Key[T]) wasDeleted(v any) {
	if k.deleted != nil {
		value, _ := v.(T)
		k.deleted(value)
	}
}

// checkAttributes is check, but a communicator that is revoked still has its attributes.
func (c *Comm) checkAttributes() error {
	err := c.check()
	if errors.Is(err, ErrRevoked) {
		return nil
	}
	return err
}

// findAttributeLocked returns the index of an attribute, or -1.
func (s *commState) findAttributeLocked(k attributeKey) int {
	return slices.IndexFunc(s.attributes, func(a attribute) bool { return a.key == k })
}

// setAttribute sets an attribute, and returns the value that it had.
func (s *commState) setAttribute(k attributeKey, v any) (before any, found bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed.Load() {
		return nil, false, fmt.Errorf("%w: %s has been freed", ErrComm, *s.label.Load())
	}
	if i := s.findAttributeLocked(k); i >= 0 {
		before, found = s.attributes[i].value, true
		s.attributes = slices.Delete(s.attributes, i, i+1)
	}
	s.attributes = append(s.attributes, attribute{k, v})
	return before, found, nil
}

// copyAttributes gives a new communicator the attributes that their keys copy.
func (s *commState) copyAttributes(to *commState) {
	s.mu.Lock()
	list := slices.Clone(s.attributes)
	s.mu.Unlock()
	for _, a := range list {
		if v, ok := a.key.copied(a.value); ok {
			_, _, _ = to.setAttribute(a.key, v) // nothing else has the communicator yet
		}
	}
}

// deleteAttributes deletes all attributes, the last one first.
func (s *commState) deleteAttributes() {
	s.mu.Lock()
	list := s.attributes
	s.attributes = nil
	s.mu.Unlock()
	for _, a := range slices.Backward(list) {
		a.key.wasDeleted(a.value)
	}
}
