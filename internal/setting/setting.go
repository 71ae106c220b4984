// Package setting is the table of the WEFT_* settings: name, default, meaning. Every reader of a setting uses
// its variable here, so `weft info --settings` prints all of them.
package setting

import (
	"time"
)

// Setting is one environment variable that changes how weft works.
type Setting struct {
	Name    string
	Default string // the text of an unset variable
	Meaning string
}

// All the settings, in the order in which they are printed.
var All = []*Setting{Fabric, Interface, Lanes, Reconnect, Ports, Checksum, ConnectTimeout, PeerTimeout,
	HugePages, CopyCosts, TLS,
	SecretFile, Coordinator, StartTimeout, CoresPerRank, HandlerCores, Endpoints, Phases, KeepSmall,
	Threshold, Vector,
	Budget, ShrinkAfter, TailLooks, ReplyTimeout, Passive, EagerMax, Rendezvous, UnexpectedMax,
	UnexpectedCount, Collectives, Check, Statistics, Report, Profile, Trace, Metrics, MetricsToken,
	Survive, Stuck, StuckAction, Log}

// Restarted is not for users: by it, a launcher tells ranks how often the job has been restarted.
var Restarted = &Setting{"WEFT_RESTARTED", "0", "how often the job has been restarted after a loss"}

var (
	Fabric = &Setting{"WEFT_FABRIC", "auto",
		"fabric (transport between ranks), by name"}
	Interface = &Setting{"WEFT_IFACE", "",
		"network interfaces for the TCP fabric, by name or as CIDR, separated by commas; peers reach " +
			"the rank at the first, and lanes use all of them; empty for the interface on the route to the " +
			"other hosts, and lo where there are none"}
	Lanes = &Setting{"WEFT_LANES", "1",
		"number of TCP connections to each peer, 1 to 8, which share its messages; if one is lost, " +
			"the others resend what it carried; of two ranks, the smaller number applies"}
	Reconnect = &Setting{"WEFT_RECONNECT", "off",
		"on reconnects, within the peer timeout and without losing messages, when the only connection " +
			"to a peer is lost; both ranks need it"}
	Ports = &Setting{"WEFT_PORTS", "0",
		"TCP ports to listen on, as LOW-HIGH; 0 lets the system choose"}
	Checksum = &Setting{"WEFT_CHECKSUM", "auto",
		"whether the TCP fabric adds a CRC to every frame: on, off, or auto (between hosts, without " +
			"TLS); on if either rank says so"}
	ConnectTimeout = &Setting{"WEFT_CONNECT_TIMEOUT", "30s",
		"how long connecting to a peer may take before the operation fails"}
	PeerTimeout = &Setting{"WEFT_PEER_TIMEOUT", "10s",
		"how long a peer may be silent, stopped or cut off, before the operations that need it fail; " +
			"100ms or more; all ranks need the same"}
	HugePages = &Setting{"WEFT_HUGE_PAGES", "on",
		"on moves the buffers of long messages that are used repeatedly onto huge pages, for shared " +
			"memory, which makes copies about twice as fast; off leaves buffers where they are"}
	CopyCosts = &Setting{"WEFT_COPY_COSTS", "",
		"costs of copies between ranks of a host: before a read of another's memory, of each KiB read, of " +
			"each KiB through shared memory, and, if it is long, of each KiB written to what another rank " +
			"has read, such as 950ns,65ns,40ns or 1.4us,57ns,55ns,107ns; 1s,1ns,1ns always takes shared " +
			"memory, 1ns,1ns,1s never; from:950ns,65ns,40ns is only a start: the first two are measured " +
			"with the first peer, the third from messages, the fourth before long collectives; empty to " +
			"start with weft's own (weft info --costs); for experts"}
	TLS = &Setting{"WEFT_TLS", "off",
		"on encrypts connections between ranks with TLS 1.3, with certificates made from the job's " +
			"secret; all ranks need the same"}
	SecretFile = &Setting{"WEFT_SECRET_FILE", "",
		"file with the job's secret (at least 32 bytes, the same on all hosts, readable only by its " +
			"owner); without it, rank 0 makes a secret and the launcher passes it on"}
	Coordinator = &Setting{"WEFT_COORDINATOR", "",
		"HOST:PORT at which rank 0 waits for the other ranks of a job without a launcher; WEFT_RANK " +
			"and WEFT_SIZE, or a scheduler's variables, give each process its rank"}
	StartTimeout = &Setting{"WEFT_START_TIMEOUT", "2m",
		"how long a job without a launcher waits until all ranks have connected"}
	CoresPerRank = &Setting{"WEFT_CORES_PER_RANK", "",
		"number of cores that each rank may use; 0 if ranks share cores and must not spin; empty for " +
			"those of its host divided by the ranks there; weft run sets it"}
	HandlerCores = &Setting{"WEFT_CQ_CORES", "",
		"processors of this rank's completion handlers, such as 3 or 3,7, which make progress while the " +
			"rank computes; the endpoints have them in turn; empty for no handlers; weft run sets it"}
	Endpoints = &Setting{"WEFT_ENDPOINTS", "auto",
		"number of endpoints of each rank, 1 to 8, or auto for as many as each rank has cores; " +
			"communicators are spread over them, and goroutines that use communicators of different " +
			"endpoints do not wait for each other; all ranks need the same"}
	Phases = &Setting{"WEFT_PHASES", "640,16448,65600",
		"slot sizes of a channel in bytes: the first one, and those to which it can grow"}
	KeepSmall = &Setting{"WEFT_KEEP_SMALL", "0",
		"1 keeps the small ring of a channel that has grown, beside the larger ring, for small " +
			"messages; all ranks need the same; for experts"}
	Threshold = &Setting{"WEFT_THRESHOLD", "",
		"size above which an element requests larger slots: bytes, or 80% to 99% of a slot; empty for " +
			"what a slot carries; for experts"}
	Vector = &Setting{"WEFT_VECTOR", "first",
		"which elements of a vector, of those that do not fit a slot, decide the requested slot size: " +
			"first, largest, or sum; with ,whole the whole vector goes through the larger slots; for experts"}
	Budget = &Setting{"WEFT_BUFFER_BUDGET", "256M",
		"maximum bytes of buffers of a rank's channels and collectives; at the limit channels do not grow, " +
			"receivers fetch large messages, and collectives go by messages"}
	ShrinkAfter = &Setting{"WEFT_SHRINK_AFTER", "10s",
		"how long a channel must be idle before it gives its large buffers back; never turns this off"}
	TailLooks = &Setting{"WEFT_TAIL_LOOKS", "64",
		"how often a rank looks for the end of an answer to a request for other buffers that has begun to " +
			"arrive, before it goes on with other work"}
	ReplyTimeout = &Setting{"WEFT_REPLY_TIMEOUT", "",
		"after how long an answer to a request for other buffers is asked for again; a peer that has not " +
			"answered in twice this time has failed; empty for WEFT_PEER_TIMEOUT; never turns this off"}
	Passive = &Setting{"WEFT_PASSIVE", "1ms",
		"how often at least a rank that computes, and has no completion handler, serves accesses to " +
			"its windows that need it; never turns this off"}
	EagerMax = &Setting{"WEFT_EAGER_MAX", "",
		"largest message that is copied through slots, such as 4K; larger ones are announced first; " +
			"empty for what the largest slot carries"}
	Rendezvous = &Setting{"WEFT_RENDEZVOUS", "auto",
		"how the bytes of large messages move: read by the receiver, written (write) by the sender " +
			"into the receiver's buffer, or auto: read over shared memory and into views, else written"}
	UnexpectedMax = &Setting{"WEFT_UNEXPECTED_MAX", "64M",
		"maximum bytes of unexpected messages (those without a receive) that a rank keeps; beyond it, " +
			"the payload stays with the sender"}
	UnexpectedCount = &Setting{"WEFT_UNEXPECTED_COUNT", "1M",
		"maximum number of unexpected messages that a rank keeps, each in about 300 bytes besides its " +
			"payload; at the limit, a peer that has sent more than its share of them is given up"}
	Collectives = &Setting{"WEFT_COLL", "",
		"algorithms of collectives, such as allreduce:ring,bcast:binomial, or a file of rules, such " +
			"as table.json; with explain rank 0 prints the choice at each call site; all ranks need the " +
			"same"}
	Check = &Setting{"WEFT_CHECK", "0",
		"1 makes each rank report mistakes of the program, with ranks, calls and source lines, on " +
			"standard error; all ranks need the same"}
	Statistics = &Setting{"WEFT_STATS", "0",
		"1 makes each rank print the counters of its channels on standard error at the end"}
	Survive = &Setting{"WEFT_SURVIVE", "0",
		"1 lets the job go on when a rank fails; weft run --survive sets it"}
	Stuck = &Setting{"WEFT_STUCK", "10s",
		"without weft run (which has --stuck): how long no message may move until rank 0 reports what the " +
			"ranks wait for, or each rank under another launcher's PMI; never also turns off the report of " +
			"a certain deadlock"}
	StuckAction = &Setting{"WEFT_STUCK_ACTION", "report",
		"without a launcher: report only reports a certain deadlock, abort also ends the job with status " +
			"1, and abort-unmoved ends it after WEFT_STUCK without proof, too"}
	Report = &Setting{"WEFT_REPORT", "0",
		"1 counts calls by their source line, for the table of weft run --report"}
	Profile = &Setting{"WEFT_PROFILE", "",
		"what each rank profiles, for the file of weft run --profile: cpu, heap, block or mutex"}
	Trace = &Setting{"WEFT_TRACE", "0",
		"bytes of memory in which each rank keeps a trace of its calls and messages, such as 16M, for " +
			"the file of weft run --trace; 0 for no trace; all ranks need the same"}
	Metrics = &Setting{"WEFT_METRICS", "",
		"where each rank serves its counters at /metrics, in Prometheus' text format: unix:PATH, in " +
			"which {rank} stands for the rank's number, for the same user; or HOST:PORT, to whose port " +
			"the rank's number is added, for callers with a token"}
	MetricsToken = &Setting{"WEFT_METRICS_TOKEN_FILE", "",
		"file with the token that WEFT_METRICS requires over TCP: a word of at least 16 bytes, " +
			"readable only by its owner"}
	Log = &Setting{"WEFT_LOG", "warn",
		"least severe level that a rank logs on standard error: error, warn, info or debug"}
)

// MaxLanes is the greatest value of WEFT_LANES.
const MaxLanes = 8

// String returns the setting's text in the environment, or the default.
func (s *Setting) String() string { return Environment().Of(s).String() }

// Duration returns Value.Duration of the environment.
func (s *Setting) Duration() (time.Duration, error) { return Environment().Of(s).Duration() }
