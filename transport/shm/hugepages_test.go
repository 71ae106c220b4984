//go:build linux

package shm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// hugeBytes is how many bytes of memory, which has a mapping of its own, are on huge pages.
func hugeBytes(t *testing.T, mem []byte) (n int) {
	t.Helper()
	file, err := os.Open("/proc/self/smaps")
	require.NoError(t, err)
	defer file.Close()
	at, inside := uintptr(unsafe.Pointer(unsafe.SliceData(mem))), false
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var from, to uintptr
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x ", &from, &to); err == nil {
			inside = from <= at && at < to
		}
		if text, is := strings.CutPrefix(lines.Text(), "AnonHugePages:"); is && inside {
			fmt.Sscan(text, &n)
			return n << 10
		}
	}
	t.Fatal("the memory is not mapped")
	return 0
}

// mapped is memory of the program on ordinary pages, which begins where a huge page may. What lies beside it
// cannot be touched, so it has a mapping of its own.
func mapped(t *testing.T, n int) []byte {
	t.Helper()
	all, err := syscall.Mmap(-1, 0, n+3*hugePage, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(all)) })
	first := -uintptr(unsafe.Pointer(unsafe.SliceData(all)))%hugePage + hugePage
	mem := all[first:][:n:n]
	require.NoError(t, syscall.Mprotect(mem, syscall.PROT_READ|syscall.PROT_WRITE))
	for i := range mem {
		mem[i] = byte(i * 7)
	}
	return mem
}

// hugePagesAreFree reports whether n bytes of other memory can be moved to huge pages now.
func hugePagesAreFree(t *testing.T, n int) bool {
	mem := mapped(t, n)
	return sys.Collapse(uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(n)) == nil
}

// Memory of the program that peers are to reach again and again comes to lie on huge pages, with what is there;
// other memory stays where it is.
func TestHugePages(t *testing.T) {
	if text, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil ||
		strings.Contains(string(text), "[never]") {
		t.Skip("this system has no huge pages for memory of programs")
	}
	const n = 6 << 20
	var err error
	t.Run("a try", func(t *testing.T) { // whose memory is gone afterwards
		try := mapped(t, hugePage)
		err = sys.Collapse(uintptr(unsafe.Pointer(unsafe.SliceData(try))), hugePage)
	})
	if errors.Is(err, syscall.EINVAL) {
		t.Skip("this system moves no memory onto huge pages: it is older than Linux 6.1")
	}
	register := func(d *Device, mem []byte, times int) {
		pd, err := d.AllocPD()
		require.NoError(t, err)
		for range times {
			m, err := pd.Register(mem, transport.RemoteRead)
			require.NoError(t, err)
			require.NoError(t, m.Deregister())
		}
	}
	for name, of := range map[string]struct {
		options   Options
		from, len int
		times     int
		want      int
	}{
		"often":                 {Options{}, 0, n, 50 * hugeAfter / hugeWeight / hugePage, n},
		"the middle of it":      {Options{}, hugePage + 100, 64 << 10, 10 * hugeAfter >> 16, hugePage},
		"a short region, again": {Options{}, 0, hugeLong, hugeUses + 1, hugePage},
		"not yet":               {Options{}, 0, hugeLong, hugeUses, 0},
		"not so often":          {Options{}, 0, n, 1, 0},
		"often, if forbidden":   {Options{NoHugePages: true}, 0, n, hugeAfter / hugePage, 0},
		"often, a few bytes":    {Options{}, 0, 16 << 10, hugeAfter >> 14, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := New(of.options)
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			d.huge.began = time.Now().Add(-time.Hour) // on a busy machine a move may take long
			mem := mapped(t, n)
			before := bytes.Clone(mem)
			require.Zero(t, hugeBytes(t, mem), "it is there already: the test shows nothing")
			register(d, mem[of.from:][:of.len], of.times)
			got := hugeBytes(t, mem)
			if got < of.want && !hugePagesAreFree(t, n) {
				t.Skip("no huge pages are free at the moment")
			}
			require.Equal(t, of.want, got)
			require.True(t, bytes.Equal(before, mem), "other bytes are there")
		})
	}
}

// Memory that can be on no huge page is not tried again and again.
func TestHugePages_OfAFile(t *testing.T) {
	name := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(name, make([]byte, 2*hugePage), 0o600))
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()
	mem, err := syscall.Mmap(int(file.Fd()), 0, 2*hugePage, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_SHARED)
	require.NoError(t, err)
	defer syscall.Munmap(mem)
	var h hugePages
	for range 2 * hugeAfter / hugePage {
		h.note(mem)
	}
	first := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))/hugePage + 1 // wholly of the file
	require.True(t, h.blocks[first%hugeBlocks].moved)
}

// Moves that take too much of the time are put off.
func TestHugePages_TakeALittleTime(t *testing.T) {
	h := hugePages{began: time.Now().Add(-time.Hour), spent: time.Minute}
	require.True(t, h.move(1), "nothing is mapped there, and nothing ever will be") // 72 s are allowed
	h.spent = 2 * time.Minute
	require.False(t, h.move(1))
}
