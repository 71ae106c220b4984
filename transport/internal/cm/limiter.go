package cm

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// Limiter limits the number of reports about unauthenticated callers in each period. The first report of a
// period says how many were omitted. The zero value is ready for use, from any goroutine.
type Limiter struct {
	Burst int // reports in a period; 0: reportBurst

	mu      sync.Mutex
	made    int       // in this period
	since   time.Time // when it began
	omitted int       // since the last report
}

const (
	reportBurst  = 5
	reportPeriod = 10 * time.Second
)

// Allow reports whether to make a report now, and how many were omitted since the last.
func (l *Limiter) Allow(now time.Time) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() || now.Sub(l.since) >= reportPeriod {
		l.since, l.made = now, 0
	}
	if l.made == cmp.Or(l.Burst, reportBurst) {
		l.omitted++
		return 0, false
	}
	l.made++
	omitted, l.omitted = l.omitted, 0
	return omitted, true
}

// Report reports a failed connection to an acceptor, unless there were too many.
func (l *Limiter) Report(a transport.Acceptor, from string, err error) {
	omitted, ok := l.Allow(time.Now())
	if !ok {
		return
	}
	if omitted > 0 {
		err = fmt.Errorf("%w (and %d more before, which were not reported)", err, omitted)
	}
	a.Refused(from, err)
}
