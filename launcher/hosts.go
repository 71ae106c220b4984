package launcher

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
)

// Host is a host that ranks may run on.
type Host struct {
	Name  string // as the starter expects it: a name, an address, or user@name
	Slots int    // how many ranks it takes; 0 means one for each usable core
}

// ParseHosts parses the value of --host: names separated by ',', each optionally with :N for its slots.
func ParseHosts(text string) ([]Host, error) {
	var hosts []Host
	for word := range strings.SplitSeq(text, ",") {
		h, err := parseHost(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		hosts = addHost(hosts, h)
	}
	return hosts, nil
}

// addHost adds a host to a list. If the host is already there, it adds the slots to the host's, unless the
// host has no number of slots: then it keeps one for each usable core.
func addHost(hosts []Host, h Host) []Host {
	for i := range hosts {
		if hosts[i].Name == h.Name {
			if hosts[i].Slots > 0 {
				hosts[i].Slots += h.Slots
			}
			return hosts
		}
	}
	return append(hosts, h)
}

// parseHost parses NAME or NAME:SLOTS. An IPv6 address with slots needs brackets.
func parseHost(word string) (h Host, err error) {
	name, slots, hasSlots := word, "", false
	if inBrackets, is := strings.CutPrefix(word, "["); is {
		var rest string
		var closed bool
		if name, rest, closed = strings.Cut(inBrackets, "]"); !closed {
			return h, fmt.Errorf("%q: no ']' after the address", word)
		}
		if slots, hasSlots = strings.CutPrefix(rest, ":"); rest != "" && !hasSlots {
			return h, fmt.Errorf("%q: after the ']' only :SLOTS can follow", word)
		}
	} else if strings.Count(word, ":") == 1 {
		name, slots, hasSlots = strings.Cut(word, ":")
	}
	address := name[strings.LastIndexByte(name, '@')+1:]
	if _, err := netip.ParseAddr(address); err != nil && strings.Contains(name, ":") {
		return h, fmt.Errorf("%q is no IPv6 address, and a name has no ':' but that before its slots", word)
	}
	if hasSlots {
		if h.Slots, err = parseSlots(slots); err != nil {
			return h, fmt.Errorf("%q: %w", word, err)
		}
	}
	if !isName(name) {
		return h, fmt.Errorf("%q is no host's name", word)
	}
	h.Name = name
	return h, nil
}

// isName reports whether a text may be the name of a host, or of a user there. A leading dash would make it
// an option of the starter, other characters are special in a shell, and invisible ones would hide it in an
// error message.
func isName(name string) bool {
	return name != "" && name[0] != '-' && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || !unicode.IsPrint(r) || strings.ContainsRune(shellCharacters, r)
	})
}

func parseSlots(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxRanks {
		return 0, fmt.Errorf("%q is not a number of slots from 1 to %d", text, maxRanks)
	}
	return n, nil
}

// ParseHostfile parses a list of hosts, one per line, in the format of Open MPI (host slots=4) or MPICH
// (host:4). Errors include the line and the column.
func ParseHostfile(r io.Reader, name string) ([]Host, error) {
	var hosts []Host
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := lines.Text()
		if n == 1 {
			text = strings.TrimPrefix(text, "\ufeff") // the byte-order mark of other systems' editors
		}
		line, _, _ := strings.Cut(text, "#")
		h, column, err := parseHostLine(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d:%d: %w", name, n, column, err)
		}
		if h.Name != "" {
			hosts = addHost(hosts, h)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("%s: no host in it", name)
	}
	return hosts, nil
}

// parseHostLine parses a line of a hostfile, which may be empty. The column is that of an error, from 1.
func parseHostLine(line string) (h Host, column int, err error) {
	for at := 0; at < len(line); {
		if line[at] == ' ' || line[at] == '\t' || line[at] == '\r' {
			at++
			continue
		}
		end := at + strings.IndexAny(line[at:]+" ", " \t\r")
		word := line[at:end]
		if h.Name == "" && strings.Contains(word, ",") {
			err = fmt.Errorf("%q: a line names one host", word)
		} else if h.Name == "" {
			h, err = parseHost(word)
		} else {
			err = h.setKey(word)
		}
		if err != nil {
			return h, at + 1, err
		}
		at = end
	}
	return h, 0, nil
}

// setKey sets a KEY=VALUE of a hostfile.
func (h *Host) setKey(word string) (err error) {
	key, value, ok := strings.Cut(word, "=")
	switch {
	case ok && (key == "slots" || key == "cpu" || key == "count"):
		h.Slots, err = parseSlots(value)
	case ok && (key == "max_slots" || key == "max-slots"):
		_, err = parseSlots(value)
	case ok && key == "user" && !isName(value):
		err = fmt.Errorf("%q is no user's name", value)
	case ok && key == "user":
		h.Name = value + "@" + h.Name
	default:
		err = fmt.Errorf("%q: slots=N, max_slots=N or user=NAME can stand after a host", word)
	}
	return err
}
