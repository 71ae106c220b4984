//go:build amd64 || arm64

package program

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// image returns the segments of the executable that contains this package: its code, and its data. It does
// not copy read-only segments, which may be most of a rank's memory.
func image() (code, data []segment, err error) {
	mappings, err := executableMappings()
	if err != nil {
		return nil, nil, err
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil, nil, err
	}
	defer mem.Close()
	for _, m := range mappings {
		s := segment{at: m.from}
		if m.access[1] == 'w' {
			s.data = make([]byte, m.to-m.from)
			if _, err := mem.ReadAt(s.data, int64(m.from)); err != nil {
				return nil, nil, err
			}
		} else {
			from := m.from // no pointer to anything that Go has allocated
			s.data = unsafe.Slice(*(**byte)(unsafe.Pointer(&from)), m.to-m.from)
		}
		if m.access[2] == 'x' {
			code = append(code, s)
		} else {
			data = append(data, s)
		}
	}
	return code, data, nil
}

// mapping is a line of /proc/PID/maps.
type mapping struct {
	from, to uintptr
	access   string
	file     string // device and inode
}

func executableMappings() ([]mapping, error) {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	var all []mapping
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		f := strings.Fields(lines.Text())
		var m mapping
		if len(f) < 5 {
			continue
		}
		if _, err := fmt.Sscanf(f[0], "%x-%x", &m.from, &m.to); err != nil {
			return nil, err
		}
		m.access, m.file = f[1], f[3]+" "+f[4]
		all = append(all, m)
	}
	here := reflect.ValueOf(image).Pointer()
	i := slices.IndexFunc(all, func(m mapping) bool { return m.from <= here && here < m.to })
	if i < 0 {
		return nil, fmt.Errorf("it is in no mapping of %s", maps.Name())
	}
	file := all[i].file
	return slices.DeleteFunc(all, func(m mapping) bool { return m.file != file || m.access[0] != 'r' }), nil
}
