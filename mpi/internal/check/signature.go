package check

import (
	"encoding/binary"
	"fmt"
)

// SignatureSize is the length of an encoded Signature.
const SignatureSize = 256

// Signature describes a collective call, as far as the calls of all ranks must match.
type Signature struct {
	// the collective, and its name in package mpi, which identifies calls without an operation
	Operation uint32
	Name      string
	Form      Form
	Root      int // -1 for none
	Bytes     int // of the vector or the block; -1 if ranks may differ
	Layout    uint32
	Element   string // name of the type
	Operator  string
	Arguments string // other arguments that must be the same at all ranks, as text
	InPlace   bool
	Line      string
}

// Form is the form of a collective call. Calls of different forms do not match (MPI 4.1, 6.12, 6.13).
type Form uint8

// The forms.
const (
	Blocking Form = iota
	Nonblocking
	Persistent
)

const (
	formAt      = 25
	nameAt      = 32
	elementAt   = 64
	operatorAt  = 96
	lineAt      = 136
	argumentsAt = 192
)

// Put encodes a signature.
func (s *Signature) Put(b *[SignatureSize]byte) {
	w := binary.LittleEndian
	w.PutUint32(b[0:], s.Operation)
	w.PutUint32(b[4:], s.Layout)
	w.PutUint64(b[8:], uint64(s.Root))
	w.PutUint64(b[16:], uint64(s.Bytes))
	w.PutUint64(b[24:], 0)
	if s.InPlace {
		b[24] = 1
	}
	b[formAt] = byte(s.Form)
	putText(b[nameAt:elementAt], s.Name)
	putText(b[elementAt:operatorAt], s.Element)
	putText(b[operatorAt:lineAt], s.Operator)
	putText(b[lineAt:argumentsAt], s.Line)
	putText(b[argumentsAt:], s.Arguments)
}

// ParseSignature decodes a signature.
func ParseSignature(b *[SignatureSize]byte) Signature {
	w := binary.LittleEndian
	return Signature{
		Operation: w.Uint32(b[0:]), Layout: w.Uint32(b[4:]),
		Root: int(w.Uint64(b[8:])), Bytes: int(w.Uint64(b[16:])), InPlace: b[24] != 0,
		Form: Form(b[formAt]),
		Name: text(b[nameAt:elementAt]), Element: text(b[elementAt:operatorAt]),
		Operator: text(b[operatorAt:lineAt]), Line: text(b[lineAt:argumentsAt]),
		Arguments: text(b[argumentsAt:]),
	}
}

// Digest is a hash of the parts of a call and its signature that must match at all ranks. It differs if
// Differ finds a class, and may differ if bytes match another type.
type Digest uint64

// With adds a number.
func (d Digest) With(v uint64) Digest {
	d = (d ^ Digest(v)) * 0x9E3779B97F4A7C15
	return d ^ d>>29
}

// WithText adds a text.
func (d Digest) WithText(s string) Digest {
	for i := range len(s) {
		d = d.With(uint64(s[i]))
	}
	return d
}

// AtFinalize is the digest of a rank that makes no more collective calls.
const AtFinalize Digest = 1

// Differ returns how two calls do not match: the class of mistake, and the values of both. The class is empty
// if they match.
func (s *Signature) Differ(t *Signature) (class, what string) {
	named := s.Operation >= setup || t.Operation >= setup
	switch {
	case s.Operation != t.Operation, s.Form != t.Form, named && s.Name != t.Name:
		return "different collective", ""
	case s.Root != t.Root:
		return "different root", fmt.Sprintf("root %d and root %d", s.Root, t.Root)
	case !fits(s.Layout, t.Layout):
		return "different type", s.Element + " and " + t.Element
	case s.Operator != t.Operator:
		return "different operator", s.Operator + " and " + t.Operator
	case s.Bytes >= 0 && t.Bytes >= 0 && s.Bytes != t.Bytes:
		return "different count", fmt.Sprintf("%d and %d bytes", s.Bytes, t.Bytes)
	case s.Arguments != t.Arguments:
		return "different arguments", s.Arguments + " and " + t.Arguments
	case s.InPlace != t.InPlace:
		return "InPlace not at all ranks", ""
	}
	return "", ""
}

// Operations that package coll does not have.
const (
	setup    = 1<<16 + iota // identified by its name: Dup, BcastValue, …
	finalize                // the end of the program
)

// Named is the operation of calls that are identified by their names, and Finalize that of the program's end.
const (
	Named    uint32 = setup
	Finalize uint32 = finalize
)
