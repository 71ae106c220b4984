package pmi

import (
	"fmt"
	"strconv"
	"strings"
)

// maxSpawnLines bounds the lines of one spawn request; it is refused in any case.
const maxSpawnLines = 1 << 16

// State is a rank's state in the protocol.
type State uint8

const (
	// no init yet, and perhaps never: not every program uses MPI. init leads to Initialized.
	Started     State = iota
	Initialized       // init has been answered. barrier_in leads to InBarrier, finalize to Finalized.
	InBarrier         // waits for the others. The last rank's barrier_in leads to Initialized.
	Finalized         // finalize has been answered; the rank sends nothing more.
)

func (s State) String() string {
	return [...]string{"started", "initialized", "in the barrier", "finalized"}[s]
}

// Config describes the job to its ranks.
type Config struct {
	KVSName string // name of the job's one key-value space
	Size    int    // ranks of the job
	// barriers do not wait for a rank whose process has ended
	Survive bool
	Preset  []string // initial keys and values, in turn, such as PMI_process_mapping
}

// Rank is a rank served by a Server.
type Rank struct {
	ID     int // in the job
	Appnum int // the number of its program in the job
}

// Server is the launcher's side for the ranks of one host, without I/O: a rank's line goes in; the lines to
// send, and the messages for the node above in the tree of the key-value space (see Space), come out.
type Server struct {
	config Config
	ranks  []rankState
	index  map[int]int // by rank: its place in ranks
	space  *KeySpace
}

type rankState struct {
	Rank
	State
	gone  bool // its process has ended
	asks  bool // it waits for the answer to get
	spawn *spawn
}

// spawn is a spawn request in progress: blocks of lines up to endcmd, as many as the request says.
type spawn struct{ lines, total, sofar int }

// Reply is a line, or several, with their newlines, to send to a rank.
type Reply struct {
	Rank int
	Line string
}

// Effects are the results of a call.
type Effects struct {
	Replies  []Reply
	Arrived  bool     // tell the node above that all ranks here wait in the barrier
	Puts     []string // and of these keys and values, in turn
	Find     string   // if not empty: the node above is asked for this key
	LostPeer bool     // the rank has lost a peer
	Peer     int      // the peer; -1 if it is not a rank
}

// Abort is the error by which a rank asks for the end of the job.
type Abort struct{ Rank, Code int }

func (a *Abort) Error() string {
	return fmt.Sprintf("rank %d called Abort with status %d", a.Rank, a.Code)
}

// Violation is the error of a rank that has violated the protocol. The job cannot go on, as the rank waits
// for an answer that will not come.
type Violation struct {
	Rank int
	What string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("rank %d broke the PMI protocol: %s", v.Rank, v.What)
}

// NewServer returns a server for some ranks of a job.
func NewServer(c Config, ranks []Rank) *Server {
	s := &Server{
		config: c, ranks: make([]rankState, len(ranks)), index: make(map[int]int, len(ranks)),
	}
	each := make([]int, len(ranks))
	for i, r := range ranks {
		s.ranks[i].Rank = r
		s.index[r.ID] = i
		each[i] = 1
	}
	s.space = NewKeySpace(each, false)
	for i := 0; i+1 < len(c.Preset); i += 2 {
		s.space.Preset(c.Preset[i], c.Preset[i+1])
	}
	return s
}

// State returns a rank's state.
func (s *Server) State(rank int) State { return s.ranks[s.index[rank]].State }

// Waiting returns the ranks in the barrier, in order.
func (s *Server) Waiting() (list []int) {
	for i := range s.ranks {
		if r := &s.ranks[i]; r.State == InBarrier && !r.gone {
			list = append(list, r.ID)
		}
	}
	return list
}

// Gone records that the rank's process has ended. This may complete a barrier.
func (s *Server) Gone(rank int) Effects {
	i := s.index[rank]
	s.ranks[i].gone = true
	if !s.config.Survive {
		return Effects{}
	}
	return s.effects(s.space.Leave(i))
}

// Release is the word of the node above that all ranks of the job wait in the barrier.
func (s *Server) Release() Effects { return s.effects(s.space.Release()) }

// Found is what the node above knows of a key.
func (s *Server) Found(key, value string, ok bool) Effects {
	return s.effects(s.space.Found(key, value, ok))
}

// effects returns the effects of a step of the space.
func (s *Server) effects(step Step) Effects {
	e := Effects{Arrived: step.Arrived, Puts: step.Puts, Find: step.Find}
	for _, i := range step.Released {
		if r := &s.ranks[i]; !r.gone {
			r.State = Initialized
			e.Replies = append(e.Replies, Reply{r.ID, "cmd=barrier_out\n"})
		}
	}
	for _, a := range step.Answers {
		s.ranks[a.Member].asks = false
		e.Replies = append(e.Replies, Reply{s.ranks[a.Member].ID, getResult(a)})
	}
	return e
}

// requests has the handler of each request.
var requests = map[string]func(s *Server, r *rankState, m message) (Effects, error){
	"init":              (*Server).init,
	"get_maxes":         (*Server).getMaxes,
	"get_appnum":        (*Server).getAppnum,
	"get_my_kvsname":    (*Server).getKVSName,
	"get_universe_size": (*Server).getUniverseSize,
	"put":               (*Server).put,
	"get":               (*Server).get,
	"get_known":         (*Server).getKnown,
	"barrier_in":        (*Server).barrier,
	"finalize":          (*Server).finalize,
	"abort":             (*Server).abort,
	"peer_lost":         (*Server).peerLost,
	"publish_name":      refuse("publish_result"),
	"unpublish_name":    refuse("unpublish_result"),
	"lookup_name":       refuse("lookup_result"),
}

// Handle handles one line of a rank, without its newline. An error is an *Abort or a *Violation, and ends the
// job.
func (s *Server) Handle(rank int, line string) (Effects, error) {
	r := &s.ranks[s.index[rank]]
	if r.spawn != nil {
		return r.spawnLine(line)
	}
	m, err := parse(line)
	if err != nil {
		return Effects{}, &Violation{rank, err.Error()}
	}
	name := m.name()
	if m[0].key == "mcmd" && name == "spawn" && r.State == Initialized {
		r.spawn = &spawn{}
		return Effects{}, nil
	}
	serve := requests[name]
	switch {
	case m[0].key != "cmd" || serve == nil:
		return Effects{}, &Violation{rank, fmt.Sprintf("the request %.60q is not known to weft", line)}
	case name == "abort", name == "peer_lost":
	case r.asks:
		return Effects{}, &Violation{rank, fmt.Sprintf("the request %s before the answer to get", name)}
	case name == "init" && r.State != Started, name != "init" && r.State != Initialized:
		return Effects{}, &Violation{rank, fmt.Sprintf("the request %s from a rank that is %s", name,
			r.State)}
	}
	return serve(s, r, m)
}

// answer returns one reply to the rank that asked.
func (r *rankState) answer(fields ...field) (Effects, error) {
	return Effects{Replies: []Reply{{r.ID, format(fields)}}}, nil
}

func (s *Server) init(r *rankState, m message) (Effects, error) {
	rc := "0"
	if v, _ := m.get("pmi_version"); v != "1" {
		rc = "-1"
	} else {
		r.State = Initialized
	}
	return r.answer(field{"cmd", "response_to_init"}, field{"pmi_version", "1"},
		field{"pmi_subversion", "1"}, field{"rc", rc})
}

func (s *Server) getMaxes(r *rankState, _ message) (Effects, error) {
	return r.answer(field{"cmd", "maxes"}, field{"kvsname_max", strconv.Itoa(maxKVSName)},
		field{"keylen_max", strconv.Itoa(MaxKey)}, field{"vallen_max", strconv.Itoa(MaxValue)},
		field{"get_known", "1"})
}

func (s *Server) getAppnum(r *rankState, _ message) (Effects, error) {
	return r.answer(field{"cmd", "appnum"}, field{"appnum", strconv.Itoa(r.Appnum)})
}

func (s *Server) getKVSName(r *rankState, _ message) (Effects, error) {
	return r.answer(field{"cmd", "my_kvsname"}, field{"kvsname", s.config.KVSName})
}

func (s *Server) getUniverseSize(r *rankState, _ message) (Effects, error) {
	return r.answer(field{"cmd", "universe_size"}, field{"size", strconv.Itoa(s.config.Size)})
}

func (s *Server) put(r *rankState, m message) (Effects, error) {
	result := func(rc, msg string) (Effects, error) {
		return r.answer(field{"cmd", "put_result"}, field{"rc", rc}, field{"msg", msg})
	}
	kvs, _ := m.get("kvsname")
	key, _ := m.get("key")
	value, _ := m.get("value")
	switch {
	case kvs != s.config.KVSName:
		return result("-1", "no_such_kvsname")
	case key == "" || len(key) >= MaxKey:
		return result("-1", "key_of_wrong_length")
	case len(value) > MaxValue:
		return result("-1", "value_too_long")
	case s.space.Has(key):
		return result("-1", "duplicate_key")
	case s.space.Put(s.index[r.ID], []string{key, value}) != nil:
		return result("-1", "kvs_full")
	}
	return result("0", "success")
}

func (s *Server) get(r *rankState, m message) (Effects, error) {
	kvs, _ := m.get("kvsname")
	key, _ := m.get("key")
	// A key of MaxKey or more cannot have been put.
	if kvs != s.config.KVSName || key == "" || len(key) >= MaxKey {
		return Effects{Replies: []Reply{{r.ID, getResult(Answer{Key: key})}}}, nil
	}
	r.asks = true
	return s.effects(s.space.Find(s.index[r.ID], key)), nil
}

// getKnown is weft's own addition: get for several keys, with an answer for each. What is not known here is
// not found, whether or not the node above knows it.
func (s *Server) getKnown(r *rankState, m message) (Effects, error) {
	list, _ := m.get("keys")
	var answers strings.Builder
	for key := range strings.SplitSeq(list, ",") {
		value, ok := s.space.Known(key)
		answers.WriteString(getResult(Answer{Key: key, Value: value, OK: ok}))
	}
	return Effects{Replies: []Reply{{r.ID, answers.String()}}}, nil
}

// getResult returns the answer to get.
func getResult(a Answer) string {
	if !a.OK {
		return format(message{{"cmd", "get_result"}, {"rc", "-1"},
			{"msg", fmt.Sprintf("key_%.64s_not_found", a.Key)}, {"value", "unknown"}})
	}
	return format(message{{"cmd", "get_result"}, {"rc", "0"}, {"msg", "success"}, {"value", a.Value}})
}

func (s *Server) barrier(r *rankState, _ message) (Effects, error) {
	r.State = InBarrier
	return s.effects(s.space.Arrive(s.index[r.ID])), nil
}

func (s *Server) finalize(r *rankState, _ message) (Effects, error) {
	r.State = Finalized
	return r.answer(field{"cmd", "finalize_ack"})
}

// abort is valid in every state: a rank may give up while another of its threads waits in the barrier.
func (s *Server) abort(r *rankState, m message) (Effects, error) {
	text, _ := m.get("exitcode")
	code, err := strconv.Atoi(text)
	if err != nil {
		code = 1
	}
	return Effects{}, &Abort{r.ID, code}
}

// peerLost is weft's own addition: a rank reports that it has lost another one. There is no answer.
func (s *Server) peerLost(_ *rankState, m message) (Effects, error) {
	text, _ := m.get("peer")
	peer, err := strconv.Atoi(text)
	if err != nil || peer < 0 || peer >= s.config.Size {
		peer = -1
	}
	return Effects{LostPeer: true, Peer: peer}, nil
}

// refuse answers a request that weft does not offer, so that the library that asked can return an error to
// its caller.
func refuse(result string) func(*Server, *rankState, message) (Effects, error) {
	return func(_ *Server, r *rankState, _ message) (Effects, error) {
		return r.answer(field{"cmd", result}, field{"rc", "-1"}, field{"msg", "not_supported_by_weft_run"})
	}
}

// spawnLine handles a line of a spawn request. The answer, a refusal, follows the endcmd of the last block.
func (r *rankState) spawnLine(line string) (Effects, error) {
	sp := r.spawn
	if sp.lines++; sp.lines > maxSpawnLines {
		return Effects{}, &Violation{r.ID, fmt.Sprintf("a spawn request of more than %d lines",
			maxSpawnLines)}
	}
	if line != "endcmd" {
		// Arguments may hold spaces; only the two counts matter here.
		switch key, value, _ := strings.Cut(line, "="); key {
		case "totspawns":
			sp.total, _ = strconv.Atoi(value)
		case "spawnssofar":
			sp.sofar, _ = strconv.Atoi(value)
		}
		return Effects{}, nil
	}
	if sp.sofar < sp.total {
		return Effects{}, nil
	}
	r.spawn = nil
	return r.answer(field{"cmd", "spawn_result"}, field{"rc", "-1"},
		field{"msg", "spawn_is_not_supported_by_weft_run"})
}
