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
	// of what it consists, condensed; equal for types that may stand for one another. 0 stands for any but
	// values: bytes and what SendVec sends
	Layout uint32
	Size   int
}

// ElementOf describes a type without pointers.
func ElementOf(t reflect.Type) *Element {
	e := &Element{Name: t.String(), Size: int(t.Size())}
	parts := appendParts(nil, t)
	text := strings.Join(parts[:period(parts)], " ")
	if text != "uint8" {
		h := fnv.New32a()
		h.Write([]byte(text))
		e.Layout = max(h.Sum32()&^valueLayout, 1)
	}
	return e
}

// valueLayout marks what SendValue and its like send.
const valueLayout = 1 << 31

// ValueOf describes the values of a type, told from those of others by a hash.
func ValueOf(name string, hash uint32) *Element {
	return &Element{Name: "value " + name, Layout: hash | valueLayout, Size: 1}
}

// maxParts bounds the look into arrays.
const maxParts = 4096

// appendParts lists the basic types that a type consists of. int and uint are what they are here.
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

// period is the length of the shortest list that makes up parts by repetition: an array of float64 is as good
// as several float64.
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

// fits reports whether elements of two layouts may stand for one another.
func fits(a, b uint32) bool { return a == b || (a == 0 || b == 0) && (a|b)&valueLayout == 0 }
