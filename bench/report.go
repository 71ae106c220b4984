package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/cpuid/v2"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/topology"
)

// Schema is the name of the format of a Report, which docs/reference/benchmarks.md describes. Members may be
// added under the same name; removing one or changing its meaning requires a new name.
const Schema = "weft-bench/1"

// Report has everything that a run has measured, and how. --json writes it as JSON.
type Report struct {
	Schema    string            `json:"schema"`
	Complete  bool              `json:"complete"` // all rows are there
	Error     string            `json:"error,omitempty"`
	Benchmark string            `json:"benchmark"`
	Title     string            `json:"title"` // as above the table
	Begun     time.Time         `json:"begun"`
	Versions  Versions          `json:"versions"`
	Machine   Machine           `json:"machine"` // of rank 0
	Command   []string          `json:"command"`
	Ranks     int               `json:"ranks"`
	Fabric    string            `json:"fabric"`   // as requested
	Fabrics   []string          `json:"fabrics"`  // fabrics that carried rank 0's messages, in order
	Settings  map[string]string `json:"settings"` // WEFT_* settings of rank 0's environment
	Options   ReportOptions     `json:"options"`
	Columns   []ReportColumn    `json:"columns"`
	// Rows map names of columns to a number, a truth value, or null if there is no figure.
	Rows []map[string]any `json:"rows"`

	columns []column // all of the table's
	options *Options
	figures [][]float64 // of Rows, by columns
}

// Versions are the versions of the measured software.
type Versions struct {
	Weft  string `json:"weft"`
	Table string `json:"table"`
	Go    string `json:"go"`
}

// Machine describes the machine on which the run took place.
type Machine struct {
	Host      string  `json:"host"`
	System    string  `json:"system"`
	Platform  string  `json:"platform"` // GOOS/GOARCH
	Processor string  `json:"processor"`
	CPUs      string  `json:"cpus"` // processors in the affinity mask of rank 0, as the kernel lists them
	Quota     float64 `json:"quota,omitempty"`
	MaxProcs  int     `json:"gomaxprocs"`
}

// ReportOptions are the options of the run. Sizes are the measured ones. If iterations and warm-up rounds are
// absent, the benchmark's own were used.
type ReportOptions struct {
	Min        int    `json:"min_size,omitempty"`
	Max        int    `json:"max_size,omitempty"`
	Iterations int    `json:"iterations,omitempty"`
	Warmup     *int   `json:"warmup,omitempty"`
	Window     int    `json:"window,omitempty"`
	Vector     int    `json:"vector,omitempty"`
	Validate   bool   `json:"validate"`
	Full       bool   `json:"full"`
	Tails      bool   `json:"tails"`
	Rewrite    bool   `json:"rewrite"`
	Alloc      string `json:"alloc"`
	Digits     int    `json:"digits"`
}

// ReportColumn describes the figures of a column.
type ReportColumn struct {
	Name    string `json:"name"`
	Heading string `json:"heading,omitempty"` // in the printed table
	Unit    string `json:"unit,omitempty"`    // us, MB/s (a megabyte is 1e6 bytes), 1/s, %, bytes, ms
}

// newReport returns a report without rows.
func (s *session) newReport() *Report {
	o := s.Options
	r := &Report{
		Schema: Schema, Benchmark: s.Name, Title: s.test(),
		Begun: s.date().UTC().Truncate(time.Second), Versions: Versions{s.by.Version, version,
			runtime.Version()}, Machine: thisMachine(),
		Command: s.by.Command, Ranks: s.world.Size(), Fabric: s.settings.Of(setting.Fabric).String(),
		Settings: map[string]string{},
		Options: ReportOptions{Iterations: o.Iterations, Vector: o.Vector, Validate: o.Validate,
			Full: o.Full, Tails: o.Tails,
			Rewrite: o.Rewrite, Alloc: "heap", Digits: o.Digits},
		Fabrics: []string{}, Rows: []map[string]any{}, columns: s.spec.columns, options: &s.Options,
	}
	if s.measureSize != nil {
		r.Options.Min, r.Options.Max = s.sizes(o)
	}
	if s.windows() {
		r.Options.Window = o.Window
	}
	if o.Warmup >= 0 {
		r.Options.Warmup = &o.Warmup
	}
	if o.Registered {
		r.Options.Alloc = "registered"
	}
	for _, known := range setting.All {
		if s.settings.IsSet(known) {
			r.Settings[known.Name] = s.settings.Of(known).String()
		}
	}
	for _, c := range r.columns {
		if c.reported(r.options) {
			r.Columns = append(r.Columns, ReportColumn{c.name, trimHeading(c.heading), c.unit})
		}
	}
	return r
}

// thisMachine describes this machine. Fields that the system does not provide are empty.
func thisMachine() Machine {
	m := Machine{System: sys.Release(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Processor: cpuid.CPU.BrandName,
		MaxProcs:  runtime.GOMAXPROCS(0)}
	m.Host, _ = os.Hostname()
	if t, err := topology.Read(); err == nil {
		m.CPUs, m.Quota = topology.FormatCPUList(t.CPUs), t.Quota
	}
	return m
}

// add adds a row. A nil report, of ranks that write none, ignores it.
func (r *Report) add(figures []float64) {
	if r == nil {
		return
	}
	line := map[string]any{}
	for i, c := range r.columns {
		switch v := figures[i]; {
		case !c.reported(r.options):
		case !figure(v):
			line[c.name] = nil
		case c.form == verdict:
			line[c.name] = v != 0
		default:
			line[c.name] = rounded(v)
		}
	}
	r.Rows = append(r.Rows, line)
	r.figures = append(r.figures, figures)
}

// seal sets the fields that are known only at the end.
func (s *session) seal(complete bool) {
	s.report.Complete = complete
	for _, c := range s.world.Stats().Channels {
		if !slices.Contains(s.report.Fabrics, c.Fabric) {
			s.report.Fabrics = append(s.report.Fabrics, c.Fabric)
		}
	}
	slices.Sort(s.report.Fabrics)
}

// setup describes in a line the system of the run.
func (r *Report) setup() string {
	fabrics := "no fabric" // a single rank sends nothing
	if len(r.Fabrics) > 0 {
		fabrics = strings.Join(r.Fabrics, " and ")
	}
	ranks := "1 rank"
	if r.Ranks != 1 {
		ranks = fmt.Sprintf("%d ranks", r.Ranks)
	}
	host := r.Machine.Host
	if host == "" {
		host = "an unknown host"
	}
	return fmt.Sprintf("%s, %s on %s", fabrics, ranks, host)
}

// rounded rounds to ten digits: more are artifacts of the arithmetic.
func rounded(v float64) float64 {
	v, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 10, 64), 64)
	if err != nil {
		panic(err) // cannot fail, as v was a number
	}
	return v
}

func (r *Report) write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
