package top

import (
	"slices"
	"unicode/utf8"
)

// The names of keys that are no characters.
const (
	Up        = "up"
	Down      = "down"
	PageUp    = "page up"
	PageDown  = "page down"
	Home      = "home"
	End       = "end"
	Enter     = "enter"
	Escape    = "escape"
	Backspace = "backspace"
	Interrupt = "interrupt"
)

// maxFilter bounds the filter, in bytes.
const maxFilter = 100

// Key takes a key: a character, or one of the names. height is that of the terminal. It reports whether the
// user wants to leave.
func (v *View) Key(key string, height int) (leave bool) {
	if v.typing && key != Interrupt {
		v.typed(key)
		return false
	}
	switch key {
	case "q", Interrupt:
		return true
	case "/":
		v.typing, v.filter = true, ""
	case Escape:
		v.filter = ""
	case " ":
		v.paused = !v.paused
	case Up, "k":
		v.top--
	case Down, "j":
		v.top++
	case PageUp:
		v.top -= max(1, height-5)
	case PageDown:
		v.top += max(1, height-5)
	case Home:
		v.top = 0
	case End:
		v.top = len(v.rows)
	default:
		if i := slices.IndexFunc(columns, func(c column) bool { return c.key == key }); i >= 0 &&
			slices.Contains(v.columns(), &columns[i]) {
			v.turned = i == v.column && !v.turned
			v.column = i
		}
	}
	v.top = max(0, v.top)
	return false
}

// typed takes a key for the filter.
func (v *View) typed(key string) {
	switch key {
	case Enter:
		v.typing = false
	case Escape:
		v.typing, v.filter = false, ""
	case Backspace:
		_, n := utf8.DecodeLastRuneInString(v.filter)
		v.filter = v.filter[:len(v.filter)-n]
	default:
		if utf8.RuneCountInString(key) == 1 && len(v.filter) < maxFilter {
			v.filter += key
		}
	}
	v.top = 0
}
