// Package setting is the one table of the WEFT_* settings: name, default, meaning. Whoever reads a setting names it by its
// constant, so that none exists that `weft info --settings` does not print.
package setting

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// Setting is one environment variable that changes how weft works.
type Setting struct {
	Name    string
	Default string // the text that stands for an unset variable
	Meaning string
}

// All the settings, in the order in which they are printed.
var All = []*Setting{Fabric, Interface, Ports, ConnectTimeout, SecretFile, CoresPerRank, Log}

var (
	Fabric         = &Setting{"WEFT_FABRIC", "auto", "transport between ranks: auto or tcp"}
	Interface      = &Setting{"WEFT_IFACE", "lo", "network interface for the TCP fabric, by name or as CIDR"}
	Ports          = &Setting{"WEFT_PORTS", "0", "TCP ports to listen on, as LOW-HIGH; 0 lets the system choose"}
	ConnectTimeout = &Setting{"WEFT_CONNECT_TIMEOUT", "30s", "how long a connection to a peer may take before the operation fails"}
	SecretFile     = &Setting{"WEFT_SECRET_FILE", "", "file with the job's secret (32 bytes, readable by its owner alone), where no launcher hands one over"}
	CoresPerRank   = &Setting{"WEFT_CORES_PER_RANK", "1", "cores that each rank may use; 0 says that ranks share cores and must not spin; weft run sets it"}
	Log            = &Setting{"WEFT_LOG", "warn", "what a rank tells on standard error: error, warn, info or debug"}
)

// String is the setting's text: what the environment says, or the default.
func (s *Setting) String() string {
	if v, ok := os.LookupEnv(s.Name); ok && v != "" {
		return v
	}
	return s.Default
}

// Duration is the setting as a length of time above zero.
func (s *Setting) Duration() (time.Duration, error) {
	d, err := time.ParseDuration(s.String())
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s=%q: not a duration above zero, such as %s", s.Name, s.String(), s.Default)
	}
	return d, nil
}

// Int is the setting as a whole number from low to high.
func (s *Setting) Int(low, high int) (int, error) {
	n, err := strconv.Atoi(s.String())
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%s=%q: not a whole number from %d to %d", s.Name, s.String(), low, high)
	}
	return n, nil
}
