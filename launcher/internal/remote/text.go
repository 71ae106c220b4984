package remote

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Arguments, variables and names of files are bytes, which need not be UTF-8, and JSON carries only text. In
// the strings of a message, a byte that is not part of UTF-8 goes as \xHH, and a backslash as \\.

// Marshal encodes a message as JSON that carries all bytes of its strings.
func Marshal(v any) ([]byte, error) {
	if v == nil {
		return []byte("null"), nil
	}
	return json.Marshal(mapStrings(reflect.ValueOf(v), escape).Interface())
}

// Unmarshal decodes what Marshal has encoded. v is a pointer.
func Unmarshal(b []byte, v any) (err error) {
	if err := json.Unmarshal(b, v); err != nil {
		return err
	}
	to := reflect.ValueOf(v).Elem()
	to.Set(mapStrings(to, func(s string) string {
		plain, bad := unescape(s)
		if bad != nil {
			err = bad
		}
		return plain
	}))
	return err
}

// mapStrings returns a copy of a value whose strings are those that f returns.
func mapStrings(v reflect.Value, f func(string) string) reflect.Value {
	if !v.IsValid() {
		return v
	}
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.String:
		out.SetString(f(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(mapStrings(v.Elem(), f))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(mapStrings(v.Field(i), f))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			out.Index(i).Set(mapStrings(v.Index(i), f))
		}
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 || v.Type().Elem().Kind() == reflect.Int {
			break
		}
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(mapStrings(v.Index(i), f))
		}
	}
	return out
}

func escape(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\\':
			b.WriteString(`\\`)
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func unescape(s string) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, `\`)
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		if s, found = strings.CutPrefix(rest, `\`); found {
			b.WriteByte('\\')
			continue
		}
		if len(rest) < 3 || rest[0] != 'x' {
			return "", fmt.Errorf("%w: %.20q in a string", errProtocol, `\`+rest)
		}
		c, err := strconv.ParseUint(rest[1:3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("%w: %.20q in a string", errProtocol, `\`+rest)
		}
		b.WriteByte(byte(c))
		s = rest[3:]
	}
}
