package pool

import (
	"fmt"
	"io"
	"os"
	"time"
)

// bar reports how many tasks are done.
type bar struct {
	to       io.Writer // nil for no report
	terminal bool      // a line can be written again
	total    int       // 0 if it is not known
	begin    time.Time
	shown    time.Time
}

func newBar(to io.Writer, total int) bar {
	return bar{to: to, terminal: terminal(to), total: total, begin: time.Now()}
}

func terminal(w io.Writer) bool {
	f, is := w.(*os.File)
	if !is {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// show reports, unless it is too soon.
func (b *bar) show(done, workers int) {
	if b.to == nil {
		return
	}
	now, every := time.Now(), everyLine
	if b.terminal {
		every = everyLine / 50
	}
	last := b.shown
	if last.IsZero() {
		last = b.begin
	}
	if now.Sub(last) < every {
		return
	}
	b.shown = now
	b.write(line(done, b.total, max(workers, 1), now.Sub(b.begin)))
}

// last ends the report.
func (b *bar) last(done int) {
	if b.to == nil {
		return
	}
	took := time.Since(b.begin)
	b.write(fmt.Sprintf("pool: %d tasks in %v", done, took.Round(time.Millisecond)))
	if b.terminal {
		fmt.Fprintln(b.to)
	}
}

func (b *bar) write(text string) {
	if b.terminal {
		fmt.Fprintf(b.to, "\r\x1b[K%s", text)
	} else {
		fmt.Fprintln(b.to, text)
	}
}

func line(done, total, workers int, took time.Duration) string {
	rate := float64(done) / took.Seconds()
	if total <= 0 {
		return fmt.Sprintf("pool: %d tasks, %d workers, %.3g/s", done, workers, rate)
	}
	text := fmt.Sprintf("pool: %d of %d tasks (%d %%), %d workers, %.3g/s", done, total, 100*done/total,
		workers, rate)
	if rate > 0 && done < total {
		left := time.Duration(float64(total-done) / rate * float64(time.Second))
		text += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	return text
}
