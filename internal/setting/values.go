package setting

import (
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weft-mpi/weft/internal/spelling"
)

// Values are the settings of one process. The zero Values are the defaults.
type Values struct{ text map[*Setting]string }

// Value is one setting with its text.
type Value struct {
	*Setting
	text string
}

// Environment returns the settings of the environment. An empty variable means the default.
func Environment() Values {
	v := Values{map[*Setting]string{}}
	for _, s := range append(All[:len(All):len(All)], Restarted) {
		if text := os.Getenv(s.Name); text != "" {
			v.text[s] = text
		}
	}
	return v
}

// Clone returns a copy that can be changed independently.
func (v Values) Clone() Values {
	c := Values{map[*Setting]string{}}
	maps.Copy(c.text, v.text)
	return c
}

// Of returns a setting with its text, or the default text.
func (v Values) Of(s *Setting) Value {
	if text, ok := v.text[s]; ok {
		return Value{s, text}
	}
	return Value{s, s.Default}
}

// IsSet reports whether a setting is set.
func (v Values) IsSet(s *Setting) bool {
	_, ok := v.text[s]
	return ok
}

// Set changes a setting by its name. An empty text means the default.
func (v Values) Set(name, text string) error {
	s, err := byName(name)
	if err != nil {
		return err
	}
	if text == "" {
		delete(v.text, s)
	} else {
		v.text[s] = text
	}
	return nil
}

// SetDefault changes a setting by its name unless it is set.
func (v Values) SetDefault(name, text string) error {
	s, err := byName(name)
	if err == nil && !v.IsSet(s) {
		err = v.Set(name, text)
	}
	return err
}

func byName(name string) (*Setting, error) {
	var names []string
	for _, s := range All {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	text := fmt.Sprintf("%.60q is no setting", name)
	if nearest := spelling.Nearest(strings.TrimPrefix(name, prefix), trimmed(names)); nearest != "" {
		text += "; did you mean " + prefix + nearest + "?"
	}
	return nil, fmt.Errorf("%s (weft info --settings lists all)", text)
}

// String lists the settings that are set.
func (v Values) String() string {
	var list []string
	for _, s := range All {
		if v.IsSet(s) {
			list = append(list, s.Name+"="+v.text[s])
		}
	}
	return strings.Join(list, " ")
}

// String returns the text.
func (v Value) String() string { return v.text }

// Duration returns the setting as a duration above zero.
func (v Value) Duration() (time.Duration, error) {
	d, err := time.ParseDuration(v.text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s=%q: not a duration above zero, such as %s", v.Name, v.text, v.Default)
	}
	return d, nil
}

// Bytes returns the setting as a number of bytes of at least low; 0 if it is empty.
func (v Value) Bytes(low int) (int, error) {
	if v.text == "" {
		return 0, nil
	}
	n, err := ParseBytes(v.text)
	if err != nil || n < low || n > 1<<46 {
		return 0, fmt.Errorf("%s=%q: not a number of bytes from %d on, such as 65536, 64K or 1M", v.Name,
			v.text, low)
	}
	return n, nil
}

// ParseBytes parses a number of bytes, with K, M or G for powers of 1024.
func ParseBytes(text string) (int, error) {
	shift := 10 * (1 + strings.IndexAny("KMG", strings.ToUpper(text[max(0, len(text)-1):])))
	if shift > 0 {
		text = text[:len(text)-1]
	}
	n, err := strconv.ParseUint(text, 10, 62-shift)
	return int(n) << shift, err
}

// On returns the setting as a switch.
func (v Value) On() (bool, error) {
	switch v.text {
	case "on", "1":
		return true, nil
	case "off", "0":
		return false, nil
	}
	return false, fmt.Errorf("%s=%q: must be on or off, or 1 or 0", v.Name, v.text)
}

// IntOrAuto returns the setting as an integer from low, above zero, to high; 0 for auto.
func (v Value) IntOrAuto(low, high int) (int, error) {
	if v.text == "auto" {
		return 0, nil
	}
	n, err := v.Int(low, high)
	if err != nil {
		err = fmt.Errorf("%w, or auto", err)
	}
	return n, err
}

// Int returns the setting as an integer from low to high.
func (v Value) Int(low, high int) (int, error) {
	n, err := strconv.Atoi(v.text)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%s=%q: not a whole number from %d to %d", v.Name, v.text, low, high)
	}
	return n, nil
}
