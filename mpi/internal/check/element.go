package check

import (
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"
)

// Element is a type of elements.
type Element struct {
	Name string
	// a hash of its basic types, equal for types that match. 0 matches all types but values: bytes, and
	// elements of SendVec
	Layout uint32
}

// ElementOf describes a type without pointers.
func ElementOf(t reflect.Type) *Element {
	e := &Element{Name: t.String()}
	parts := appendParts(nil, t)
	text := strings.Join(parts[:period(parts)], " ")
	if text != "uint8" {
		h := fnv.New32a()
		h.Write([]byte(text))
		e.Layout = max(h.Sum32()&^valueLayout, 1)
	}
	return e
}

// valueLayout marks the values of SendValue and similar functions.
const valueLayout = 1 << 31

// ValueOf describes the values of a type, identified by a hash.
func ValueOf(name string, hash uint32) *Element {
	return &Element{Name: "value " + name, Layout: hash | valueLayout}
}

// maxParts bounds the parts of arrays that are examined.
const maxParts = 4096

// appendParts appends the basic types of a type. int and uint have this system's size.
func appendParts(list []string, t reflect.Type) []string {
	switch k := t.Kind(); k {
	case reflect.Array:
		for range t.Len() {
			if len(list) > maxParts {
				break
			}
			list = appendParts(list, t.Elem())
		}
		return list
	case reflect.Struct:
		for i := range t.NumField() {
			list = appendParts(list, t.Field(i).Type)
		}
		return list
	case reflect.Int:
		return append(list, fmt.Sprintf("int%d", t.Bits()))
	case reflect.Uint:
		return append(list, fmt.Sprintf("uint%d", t.Bits()))
	default:
		return append(list, k.String())
	}
}

// period returns the length of the shortest list whose repetition makes parts: an array of float64 matches
// several float64.
func period(parts []string) int {
	for n := 1; n <= len(parts)/2; n++ {
		if len(parts)%n != 0 {
			continue
		}
		same := true
		for i := n; i < len(parts) && same; i++ {
			same = parts[i] == parts[i-n]
		}
		if same {
			return n
		}
	}
	return len(parts)
}

// fits reports whether elements of two layouts match.
func fits(a, b uint32) bool { return a == b || (a == 0 || b == 0) && (a|b)&valueLayout == 0 }
