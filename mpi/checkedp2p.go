package mpi

import (
	"fmt"

	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// smallChecked is the payload up to which a blocking call copies a message together with its header.
const smallChecked = 8 << 10

// elementOf describes T, in checking mode; it is nil otherwise, and for a type that cannot be sent.
func elementOf[T any](c *Comm) *check.Element {
	if c == nil || c.commState == nil || c.checker == nil {
		return nil
	}
	if k := lastOf[T](); k != nil {
		return k.element
	}
	return lookElement[T]().element
}

// bytesElement stands for messages that may be received as any type.
var bytesElement = &check.Element{Name: "bytes", Size: 1}

func orBytes(e *check.Element) *check.Element {
	if e == nil {
		return bytesElement
	}
	return e
}

func (c *Comm) with(peer, tag int) string {
	switch {
	case peer == AnySource && tag == AnyTag:
		return fmt.Sprintf("from any source, any tag, on %s", c.Name())
	case peer == AnySource:
		return fmt.Sprintf("from any source, tag %d, on %s", tag, c.Name())
	case tag == AnyTag:
		return fmt.Sprintf("with rank %d, any tag, on %s", peer, c.Name())
	}
	return fmt.Sprintf("with rank %d, tag %d, on %s", peer, tag, c.Name())
}

// checkedSend is Send and Ssend in checking mode.
func (c *Comm) checkedSend(b []byte, element *check.Element, dst, tag int, sync bool) error {
	k := c.checker
	if !sync && c.canceller == nil && len(b) <= smallChecked {
		site := k.sites.Here()
		if k.operations.Any() {
			k.operations.Look(&check.Operation{Site: site, With: c.with(dst, tag), Reads: [][]byte{b}})
		}
		m := k.headers.Get().(*[]byte)
		check.PutHeader(*m, orBytes(element), site)
		n := copy((*m)[check.HeaderSize:], b)
		err := c.e.Send(c.context, (*m)[:check.HeaderSize+n], c.worldRank(dst), tag)
		k.headers.Put(m)
		return err
	}
	r, err := c.checkedIsend([][]byte{b}, element, dst, tag, sync)
	if err == nil {
		var st engine.Status
		st, err = c.e.Wait(r.h)
		c.checker.waitedFor(c, r.h, &st, err)
	}
	return err
}

// checkedRecv is Recv in checking mode.
func (c *Comm) checkedRecv(b []byte, element *check.Element, src, tag, elem int) (st engine.Status,
	err error) {
	k := c.checker
	if c.canceller == nil && len(b) <= smallChecked {
		if k.operations.Any() {
			k.operations.Look(&check.Operation{Site: k.sites.Here(), With: c.with(src, tag),
				Writes: [][]byte{b}})
		}
		m := k.headers.Get().(*[]byte)
		err = c.e.Recv(c.context, (*m)[:check.HeaderSize+len(b)], c.worldRank(src), tag, elem, &st)
		withoutHeader(err)
		n := max(0, min(st.Bytes-check.HeaderSize, len(b)))
		copy(b, (*m)[check.HeaderSize:][:n])
		if err == nil && !check.SameLayout(*m, orBytes(element)) {
			k.sameType(c, *m, element, &st, k.sites.Here())
		}
		k.headers.Put(m)
		return st, err
	}
	r, err := c.checkedIrecv([][]byte{b}, element, src, tag, elem)
	if err == nil {
		st, err = c.e.Wait(r.h)
		c.checker.waitedFor(c, r.h, &st, err)
	}
	return st, err
}

// checkedIsend begins a send of a message in pieces, in checking mode.
func (c *Comm) checkedIsend(pieces [][]byte, element *check.Element, dst, tag int, sync bool) (Request,
	error) {
	r := &checkedRequest{}
	r.Site, r.With, r.Reads = c.checker.sites.Here(), c.with(dst, tag), pieces
	check.PutHeader(r.head[:], orBytes(element), r.Site)
	begin := c.e.IsendVec
	if sync {
		begin = c.e.IssendVec
	}
	c.checker.operations.Begin(&r.Operation)
	h, err := begin(c.context, r.withHeader(pieces), c.worldRank(dst), tag)
	return c.begunChecked(r, h, err)
}

// checkedIrecv begins a receive into pieces of memory, in checking mode.
func (c *Comm) checkedIrecv(pieces [][]byte, element *check.Element, src, tag, elem int) (Request, error) {
	r := c.newCheckedRecv(pieces, element, src, tag)
	h, err := c.e.IrecvVec(c.context, r.withHeader(pieces), c.worldRank(src), tag, elem)
	return c.begunChecked(r, h, err)
}

// checkedImrecv begins the receive of a message that was probed, in checking mode.
func (c *Comm) checkedImrecv(m *Message, b []byte, element *check.Element, elem int) (Request, error) {
	r := c.newCheckedRecv([][]byte{b}, element, m.source, m.tag)
	h, err := c.e.ImrecvVec(m.m, r.withHeader([][]byte{b}), elem)
	return c.begunChecked(r, h, err)
}

func (c *Comm) newCheckedRecv(pieces [][]byte, element *check.Element, src, tag int) *checkedRequest {
	r := &checkedRequest{element: orBytes(element)}
	r.Site, r.With, r.Writes = c.checker.sites.Here(), c.with(src, tag), pieces
	c.checker.operations.Begin(&r.Operation)
	return r
}

// withHeader is a message with its header before it.
func (r *checkedRequest) withHeader(pieces [][]byte) [][]byte {
	return append(append(r.vec[:0], r.head[:]), pieces...)
}

func (c *Comm) begunChecked(r *checkedRequest, h engine.Request, err error) (Request, error) {
	if err != nil {
		c.checker.operations.Drop(&r.Operation)
		return Request{}, err
	}
	c.checker.track(h, r)
	return c.begun(h, nil)
}
