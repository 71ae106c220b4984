// Package setting is the one table of the WEFT_* settings: name, default, meaning. Whoever reads a setting
// names it by its constant, so that none exists that `weft info --settings` does not print.
package setting

import (
	"time"
)

// Setting is one environment variable that changes how weft works.
type Setting struct {
	Name    string
	Default string // the text that stands for an unset variable
	Meaning string
}

// All the settings, in the order in which they are printed.
var All = []*Setting{Fabric, Interface, Lanes, Reconnect, Ports, Checksum, ConnectTimeout, PeerTimeout,
	HugePages, TLS,
	SecretFile, Coordinator, StartTimeout, CoresPerRank, HandlerCores, Phases, KeepSmall, Threshold, Vector,
	Budget, ShrinkAfter, Passive, EagerMax, Rendezvous, UnexpectedMax, UnexpectedCount, Collectives,
	Check, Statistics, Report, Profile, Trace, Metrics, MetricsToken,
	Survive, Restarted, Stuck, StuckAction, Log}

var (
	Fabric    = &Setting{"WEFT_FABRIC", "auto", "transport between ranks, by name"}
	Interface = &Setting{"WEFT_IFACE", "lo",
		"network interfaces for the TCP fabric, by name or as CIDR, with ',' between them; peers reach " +
			"the rank at the first, and lanes use them all; not set, and ranks are on several hosts: the " +
			"one on the way to those"}
	Lanes = &Setting{"WEFT_LANES", "1",
		"TCP connections to each peer, 1 to 8, which share its messages and stand in for each other: one " +
			"that is lost is made anew; the smaller number of two ranks holds"}
	Reconnect = &Setting{"WEFT_RECONNECT", "off",
		"on makes a lost connection to a peer anew also where it was the only one, within the peer " +
			"timeout, and nothing of the messages is lost; where both ranks say so"}
	Ports = &Setting{"WEFT_PORTS", "0",
		"TCP ports to listen on, as LOW-HIGH; 0 lets the system choose"}
	Checksum = &Setting{"WEFT_CHECKSUM", "auto",
		"whether the TCP fabric puts a CRC into every frame: on, off, or auto, which means between " +
			"machines and without TLS; on where either side says so"}
	ConnectTimeout = &Setting{"WEFT_CONNECT_TIMEOUT", "30s",
		"how long a connection to a peer may take before the operation fails"}
	PeerTimeout = &Setting{"WEFT_PEER_TIMEOUT", "10s",
		"how long a peer may be silent, stopped or cut off, before what waits for it fails; 100ms or " +
			"more; all ranks need the same"}
	HugePages = &Setting{"WEFT_HUGE_PAGES", "on",
		"off leaves buffers of long messages in shared memory on the pages that they have; on moves those " +
			"that are used again and again onto huge pages, which are copied twice as fast"}
	TLS = &Setting{"WEFT_TLS", "off",
		"on encrypts connections between ranks with TLS 1.3, by certificates made from the job's secret; " +
			"all ranks need the same"}
	SecretFile = &Setting{"WEFT_SECRET_FILE", "",
		"file with the job's secret (at least 32 bytes, the same on all hosts, readable by its owner " +
			"alone); without it rank 0 makes one, which the launcher passes on"}
	Coordinator = &Setting{"WEFT_COORDINATOR", "",
		"HOST:PORT at which rank 0 waits for the other ranks of a job without a launcher; WEFT_RANK and " +
			"WEFT_SIZE, or a scheduler's variables, tell each process its rank"}
	StartTimeout = &Setting{"WEFT_START_TIMEOUT", "2m",
		"how long a job without a launcher waits for all its ranks to come"}
	CoresPerRank = &Setting{"WEFT_CORES_PER_RANK", "1",
		"cores that each rank may use; 0 says that ranks share cores and must not spin; weft run sets it"}
	HandlerCores = &Setting{"WEFT_CQ_CORES", "",
		"processors of this rank's completion handler, such as 3 or 3,7; it runs on the first and makes " +
			"progress while the rank computes; empty for none; weft run sets it"}
	Phases = &Setting{"WEFT_PHASES", "640,16448,65600",
		"sizes of a channel's slots in bytes: to begin with, and those it can grow to"}
	KeepSmall = &Setting{"WEFT_KEEP_SMALL", "0",
		"1 keeps the small ring of a channel that has grown for small messages, beside the larger one; " +
			"all ranks need the same"}
	Threshold = &Setting{"WEFT_THRESHOLD", "",
		"size above which an element asks for larger slots: bytes, or 80% to 99% of a slot; empty for " +
			"what a slot carries"}
	Vector = &Setting{"WEFT_VECTOR", "first",
		"what decides on the slots for a vector: first, largest, or sum of the elements that do not fit; " +
			"with ,whole all of it goes through them"}
	Budget = &Setting{"WEFT_BUFFER_BUDGET", "256M",
		"most bytes of channel buffers of a rank; beyond it channels do not grow, and large messages are " +
			"fetched by their receivers"}
	ShrinkAfter = &Setting{"WEFT_SHRINK_AFTER", "10s",
		"how long a channel has to be quiet before its large buffers are given back; never for never"}
	Passive = &Setting{"WEFT_PASSIVE", "1ms",
		"how often at least a rank that computes looks after its windows, where others need it to reach " +
			"them and it has no completion handler; never for never"}
	EagerMax = &Setting{"WEFT_EAGER_MAX", "",
		"largest message that is copied through slots, such as 4K; larger ones are fetched by their " +
			"receiver; empty for what the largest slot carries"}
	Rendezvous = &Setting{"WEFT_RENDEZVOUS", "read",
		"how the bytes of large messages move: read by their receivers, or write, by their senders into " +
			"the buffers that receivers grant"}
	UnexpectedMax = &Setting{"WEFT_UNEXPECTED_MAX", "64M",
		"bytes of messages without a receive that a rank keeps; beyond it the bytes stay with their senders"}
	UnexpectedCount = &Setting{"WEFT_UNEXPECTED_COUNT", "1M",
		"messages without a receive that a rank keeps, in about 300 bytes each besides their payload; at " +
			"the limit a peer that has sent more than its share of them is given up"}
	Collectives = &Setting{"WEFT_COLL", "",
		"algorithms of collectives, such as allreduce:ring,bcast:binomial, or a file of rules such as " +
			"table.json; explain has rank 0 print what is chosen at each call site; all ranks need the same"}
	Check = &Setting{"WEFT_CHECK", "0",
		"1 has each rank report mistakes of the program, with ranks, calls and lines, on standard error; " +
			"all ranks need the same"}
	Statistics = &Setting{"WEFT_STATS", "0",
		"1 has each rank tell the counters of its channels on standard error at the end"}
	Survive = &Setting{"WEFT_SURVIVE", "0",
		"1 says that the job goes on when a rank fails; weft run --survive sets it"}
	Restarted = &Setting{"WEFT_RESTARTED", "0",
		"how often the job has been started again after a loss; weft run sets it"}
	Stuck = &Setting{"WEFT_STUCK", "10s",
		"without weft run, which has --stuck: how long no message may move until rank 0 tells on standard " +
			"error what the ranks wait for; a deadlock that is certain is told at once; never for neither; " +
			"under another launcher's PMI each rank tells what it waits for itself"}
	StuckAction = &Setting{"WEFT_STUCK_ACTION", "report",
		"without a launcher: what rank 0 does when a deadlock is certain: report, or abort, which ends the " +
			"job with status 1"}
	Report = &Setting{"WEFT_REPORT", "0",
		"1 counts calls by their place in the program, for the table of weft run --report"}
	Profile = &Setting{"WEFT_PROFILE", "",
		"what each rank profiles and hands over at its end, for the file of weft run --profile: cpu, heap, " +
			"block or mutex"}
	Trace = &Setting{"WEFT_TRACE", "0",
		"bytes of memory in which each rank keeps a trace of its calls and messages, such as 16M, for the " +
			"file of weft run --trace; 0 for none; all ranks need the same"}
	Metrics = &Setting{"WEFT_METRICS", "",
		"where each rank serves its counters at /metrics, in Prometheus' text format: unix:PATH, in which " +
			"{rank} is the rank's number, for the same user; or HOST:PORT, to whose port the rank's number " +
			"is added, for who has a token"}
	MetricsToken = &Setting{"WEFT_METRICS_TOKEN_FILE", "",
		"file with the token that WEFT_METRICS asks for over TCP: a word of 16 bytes or more, readable by " +
			"its owner alone"}
	Log = &Setting{"WEFT_LOG", "warn",
		"what a rank tells on standard error: error, warn, info or debug"}
)

// MaxLanes is the greatest value of WEFT_LANES.
const MaxLanes = 8

// String is the setting's text in the environment, or the default.
func (s *Setting) String() string { return Environment().Of(s).String() }

// Duration is Value.Duration of the environment.
func (s *Setting) Duration() (time.Duration, error) { return Environment().Of(s).Duration() }
