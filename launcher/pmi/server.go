package pmi

import (
	"fmt"
	"strconv"
	"strings"
)

// maxStored bounds the bytes of keys and values that one rank may put.
const maxStored = 16 << 20

// maxSpawnLines bounds the lines of one spawn request; it is refused in any case.
const maxSpawnLines = 1 << 16

// State is where a rank stands in the protocol.
type State uint8

const (
	// no init yet, and perhaps never: not every program is one of MPI. init leads to Initialized.
	Started     State = iota
	Initialized       // init has been answered. barrier_in leads to InBarrier, finalize to Finalized.
	InBarrier         // waits for the others. The last rank's barrier_in leads to Initialized.
	Finalized         // finalize has been answered; the rank says no more.
)

func (s State) String() string {
	return [...]string{"started", "initialized", "in the barrier", "finalized"}[s]
}

// Config is what a Server tells its ranks.
type Config struct {
	KVSName string // name of the job's one key-value space
	Appnum  []int  // per rank: the number of its program among those of the job
	// a rank whose process has ended is not waited for: the ranks that are left pass the barrier without it
	Survive bool
	Preset  []string // keys and values in turn that the space has from the start, such as PMI_process_mapping
}

// Server is the launcher's side for all ranks of a job, without I/O: a rank's line goes in, the lines to send
// come out.
type Server struct {
	config   Config
	ranks    []rankState
	kvs      map[string]string
	waiting  int   // ranks in the barrier
	suspects []int // whom others have lost, since Suspects was asked
}

type rankState struct {
	State
	gone   bool // its process has ended
	lost   bool // it has lost a peer, and what it does since may follow from that
	stored int  // bytes put
	spawn  *spawn
}

// spawn is a request to spawn that is under way: lines up to endcmd, and as many such blocks as it says
// itself.
type spawn struct{ lines, total, sofar int }

// Reply is one line, with its newline, to send to a rank.
type Reply struct {
	Rank int
	Line string
}

// Abort is the error by which a rank asks for the end of the job.
type Abort struct{ Rank, Code int }

func (a *Abort) Error() string {
	return fmt.Sprintf("rank %d called Abort with status %d", a.Rank, a.Code)
}

// Violation is the error of a rank that does not keep to the protocol. The job cannot go on: the rank waits
// for an answer that there is none to.
type Violation struct {
	Rank int
	What string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("rank %d broke the PMI protocol: %s", v.Rank, v.What)
}

// NewServer serves a job of len(c.Appnum) ranks.
func NewServer(c Config) *Server {
	s := &Server{config: c, ranks: make([]rankState, len(c.Appnum)), kvs: make(map[string]string)}
	for i := 0; i+1 < len(c.Preset); i += 2 {
		s.kvs[c.Preset[i]] = c.Preset[i+1]
	}
	return s
}

// State is where a rank stands.
func (s *Server) State(rank int) State { return s.ranks[rank].State }

// Stranded finds a rank that waits in a barrier which another rank can no longer join, because its process
// has ended or it has finalized. Nobody will ever leave that barrier.
func (s *Server) Stranded() (waits, missing int, found bool) {
	if s.waiting == 0 {
		return 0, 0, false
	}
	waits, missing = -1, -1
	for i, r := range s.ranks {
		if r.State == InBarrier && !r.gone {
			if waits < 0 {
				waits = i
			}
		} else if missing < 0 && (r.gone && !s.config.Survive || r.State == Finalized && !r.gone) {
			missing = i
		}
	}
	return waits, missing, waits >= 0 && missing >= 0
}

// Gone notes that the rank's process has ended. The others may have waited for it alone.
func (s *Server) Gone(rank int) []Reply {
	r := &s.ranks[rank]
	if r.gone {
		return nil
	}
	r.gone = true
	if !s.config.Survive {
		return nil
	}
	if r.State == InBarrier {
		s.waiting--
	}
	return s.passBarrier()
}

// Suspects are the ranks that others have lost, since the last call.
func (s *Server) Suspects() []int {
	list := s.suspects
	s.suspects = nil
	return list
}

// requests names what serves each request.
var requests = map[string]func(s *Server, rank int, m message) ([]Reply, error){
	"init":              (*Server).init,
	"get_maxes":         (*Server).getMaxes,
	"get_appnum":        (*Server).getAppnum,
	"get_my_kvsname":    (*Server).getKVSName,
	"get_universe_size": (*Server).getUniverseSize,
	"put":               (*Server).put,
	"get":               (*Server).get,
	"barrier_in":        (*Server).barrier,
	"finalize":          (*Server).finalize,
	"abort":             (*Server).abort,
	"peer_lost":         (*Server).peerLost,
	"publish_name":      refuse("publish_result"),
	"unpublish_name":    refuse("unpublish_result"),
	"lookup_name":       refuse("lookup_result"),
}

// Handle takes one line of a rank, without its newline. An error is an *Abort or a *Violation, and ends the
// job.
func (s *Server) Handle(rank int, line string) ([]Reply, error) {
	r := &s.ranks[rank]
	if r.spawn != nil {
		return s.spawnLine(rank, line)
	}
	m, err := parse(line)
	if err != nil {
		return nil, &Violation{rank, err.Error()}
	}
	name := m.name()
	if m[0].key == "mcmd" && name == "spawn" && r.State == Initialized {
		r.spawn = &spawn{}
		return nil, nil
	}
	serve := requests[name]
	switch {
	case m[0].key != "cmd" || serve == nil:
		return nil, &Violation{rank, fmt.Sprintf("the request %.60q is not known to weft", line)}
	case name == "abort", name == "peer_lost":
	case name == "init" && r.State != Started, name != "init" && r.State != Initialized:
		return nil, &Violation{rank, fmt.Sprintf("the request %s from a rank that is %s", name, r.State)}
	}
	return serve(s, rank, m)
}

// answer is one reply to the rank that asked.
func answer(rank int, fields ...field) ([]Reply, error) {
	return []Reply{{rank, format(fields)}}, nil
}

func (s *Server) init(rank int, m message) ([]Reply, error) {
	rc := "0"
	if v, _ := m.get("pmi_version"); v != "1" {
		rc = "-1"
	} else {
		s.ranks[rank].State = Initialized
	}
	return answer(rank, field{"cmd", "response_to_init"}, field{"pmi_version", "1"},
		field{"pmi_subversion", "1"}, field{"rc", rc})
}

func (s *Server) getMaxes(rank int, _ message) ([]Reply, error) {
	return answer(rank, field{"cmd", "maxes"}, field{"kvsname_max", strconv.Itoa(maxKVSName)},
		field{"keylen_max", strconv.Itoa(MaxKey)}, field{"vallen_max", strconv.Itoa(MaxValue)})
}

func (s *Server) getAppnum(rank int, _ message) ([]Reply, error) {
	return answer(rank, field{"cmd", "appnum"}, field{"appnum", strconv.Itoa(s.config.Appnum[rank])})
}

func (s *Server) getKVSName(rank int, _ message) ([]Reply, error) {
	return answer(rank, field{"cmd", "my_kvsname"}, field{"kvsname", s.config.KVSName})
}

func (s *Server) getUniverseSize(rank int, _ message) ([]Reply, error) {
	return answer(rank, field{"cmd", "universe_size"}, field{"size", strconv.Itoa(len(s.ranks))})
}

func (s *Server) put(rank int, m message) ([]Reply, error) {
	result := func(rc, msg string) ([]Reply, error) {
		return answer(rank, field{"cmd", "put_result"}, field{"rc", rc}, field{"msg", msg})
	}
	kvs, _ := m.get("kvsname")
	key, _ := m.get("key")
	value, _ := m.get("value")
	_, taken := s.kvs[key]
	switch {
	case kvs != s.config.KVSName:
		return result("-1", "no_such_kvsname")
	case key == "" || len(key) >= MaxKey:
		return result("-1", "key_of_wrong_length")
	case len(value) > MaxValue:
		return result("-1", "value_too_long")
	case taken:
		return result("-1", "duplicate_key")
	case s.ranks[rank].stored+len(key)+len(value) > maxStored:
		return result("-1", "kvs_full")
	}
	s.ranks[rank].stored += len(key) + len(value)
	s.kvs[strings.Clone(key)] = strings.Clone(value)
	return result("0", "success")
}

func (s *Server) get(rank int, m message) ([]Reply, error) {
	kvs, _ := m.get("kvsname")
	key, _ := m.get("key")
	value, ok := s.kvs[key]
	if !ok || kvs != s.config.KVSName {
		return answer(rank, field{"cmd", "get_result"}, field{"rc", "-1"},
			field{"msg", fmt.Sprintf("key_%.64s_not_found", key)}, field{"value", "unknown"})
	}
	return answer(rank, field{"cmd", "get_result"}, field{"rc", "0"}, field{"msg", "success"},
		field{"value", value})
}

func (s *Server) barrier(rank int, _ message) ([]Reply, error) {
	s.ranks[rank].State = InBarrier
	s.waiting++
	return s.passBarrier(), nil
}

// passBarrier lets the ranks in the barrier go if all have come who can.
func (s *Server) passBarrier() []Reply {
	expected := len(s.ranks)
	if s.config.Survive {
		for i := range s.ranks {
			if s.ranks[i].gone {
				expected--
			}
		}
	}
	if s.waiting == 0 || s.waiting < expected {
		return nil
	}
	s.waiting = 0
	var out []Reply
	for i := range s.ranks {
		if r := &s.ranks[i]; r.State == InBarrier && !r.gone {
			r.State = Initialized
			out = append(out, Reply{i, "cmd=barrier_out\n"})
		}
	}
	return out
}

func (s *Server) finalize(rank int, _ message) ([]Reply, error) {
	s.ranks[rank].State = Finalized
	return answer(rank, field{"cmd", "finalize_ack"})
}

// abort is heard in every state: a rank may give up while another of its threads waits in the barrier.
func (s *Server) abort(rank int, m message) ([]Reply, error) {
	text, _ := m.get("exitcode")
	code, err := strconv.Atoi(text)
	if err != nil {
		code = 1
	}
	return nil, &Abort{rank, code}
}

// peerLost is weft's own addition: a rank tells that it has lost another one. There is no answer.
func (s *Server) peerLost(rank int, m message) ([]Reply, error) {
	s.ranks[rank].lost = true
	text, _ := m.get("peer")
	if peer, err := strconv.Atoi(text); err == nil && peer >= 0 && peer < len(s.ranks) {
		s.suspects = append(s.suspects, peer)
	}
	return nil, nil
}

// LostPeer tells whether a rank has said that it has lost another one.
func (s *Server) LostPeer(rank int) bool { return s.ranks[rank].lost }

// refuse answers a request that weft does not offer, so that the library that asked can return an error to
// its caller.
func refuse(result string) func(*Server, int, message) ([]Reply, error) {
	return func(_ *Server, rank int, _ message) ([]Reply, error) {
		return answer(rank, field{"cmd", result}, field{"rc", "-1"},
			field{"msg", "not_supported_by_weft_run"})
	}
}

// spawnLine takes the lines of a spawn request. The answer, a refusal, is due after the endcmd of the last
// block.
func (s *Server) spawnLine(rank int, line string) ([]Reply, error) {
	r := &s.ranks[rank]
	sp := r.spawn
	if sp.lines++; sp.lines > maxSpawnLines {
		return nil, &Violation{rank, fmt.Sprintf("a spawn request of more than %d lines", maxSpawnLines)}
	}
	if line != "endcmd" {
		// Arguments may hold spaces; only the two counts matter here.
		switch key, value, _ := strings.Cut(line, "="); key {
		case "totspawns":
			sp.total, _ = strconv.Atoi(value)
		case "spawnssofar":
			sp.sofar, _ = strconv.Atoi(value)
		}
		return nil, nil
	}
	if sp.sofar < sp.total {
		return nil, nil
	}
	r.spawn = nil
	return answer(rank, field{"cmd", "spawn_result"}, field{"rc", "-1"},
		field{"msg", "spawn_is_not_supported_by_weft_run"})
}
