package pmi

import (
	"fmt"
	"strings"
)

// The limits of the protocol. Clients derive other sizes from the announced ones, so these cannot be chosen
// freely.
const (
	maxKVSName = 256
	MaxKey     = 64   // bytes of a key, including the NUL of a C client
	MaxValue   = 1024 // bytes of a value; up to about 600 pass through every launcher
	maxLine    = 2048 // bytes of a line, including its newline: a put of a value of MaxValue fits
)

// A field is one key=value of a line. Neither part holds a space or a newline.
type field struct{ key, value string }

// A message has the fields of a line, in order.
type message []field

// get returns the value of the first field with this key.
func (m message) get(key string) (string, bool) {
	for _, f := range m {
		if f.key == key {
			return f.value, true
		}
	}
	return "", false
}

// name returns the command or answer of the line: the value of its first field, which is cmd or, if a request
// takes several lines, mcmd.
func (m message) name() string {
	if len(m) > 0 && (m[0].key == "cmd" || m[0].key == "mcmd") {
		return m[0].value
	}
	return ""
}

// parse parses a line without its newline. Fields are separated by spaces and split at their first '='.
func parse(line string) (message, error) {
	if len(line) >= maxLine {
		return nil, fmt.Errorf("a line of %d bytes is longer than the %d allowed", len(line), maxLine-1)
	}
	if i := strings.IndexAny(line, "\x00\r\n"); i >= 0 {
		return nil, fmt.Errorf("byte %#02x inside the line %.60q", line[i], line)
	}
	var m message
	for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return r == ' ' }) {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%.60q is not key=value in the line %.60q", word, line)
		}
		m = append(m, field{key, value})
	}
	if m == nil {
		return nil, fmt.Errorf("an empty line")
	}
	return m, nil
}

// format returns the line of a message, with its newline.
func format(m message) string {
	var b strings.Builder
	for i, f := range m {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(f.key)
		b.WriteByte('=')
		b.WriteString(f.value)
	}
	b.WriteByte('\n')
	return b.String()
}

// checkWord returns an error if s cannot be a key or value in a line.
func checkWord(what, s string, limit int) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is empty", what)
	case len(s) > limit:
		return fmt.Errorf("%s of %d bytes is longer than the %d that the launcher takes", what, len(s), limit)
	case strings.ContainsAny(s, " \x00\r\n"):
		return fmt.Errorf("%s %.60q has a space, newline or NUL in it", what, s)
	}
	return nil
}

// CheckPair returns an error if no rank can have put a key with a value, because they would not fit a line.
func CheckPair(key, value string) error {
	if err := checkWord("a key", key, MaxKey-1); err != nil {
		return err
	}
	if value == "" {
		return nil
	}
	return checkWord("a value", value, MaxValue)
}
