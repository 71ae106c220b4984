package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// replyTimeout bounds the writing of an answer: a rank has one request under way, so its connection has room
// unless the rank is stopped and has broken the protocol besides.
const replyTimeout = 2 * time.Minute

// Service, for tests, connects a Server with the ranks of a job on one host, one connection each.
type Service struct {
	mu     sync.Mutex
	server *Server
	conns  []net.Conn
}

// NewService serves a job over conns, one for each rank.
func NewService(c Config, conns []net.Conn) *Service {
	return &Service{server: newWhole(c), conns: conns}
}

// newWhole is a server for all ranks of a job.
func newWhole(c Config) *Server {
	ranks := make([]Rank, c.Size)
	for i := range ranks {
		ranks[i].ID = i
	}
	return NewServer(c, ranks)
}

// handle is Handle of a server without a node above it: a key that the server does not have does not exist.
func (s *Server) handle(rank int, line string) ([]Reply, error) {
	e, err := s.Handle(rank, line)
	if err != nil {
		return nil, err
	}
	return append(e.Replies, s.alone(e)...), nil
}

// alone answers in place of a node above.
func (s *Server) alone(e Effects) []Reply {
	switch {
	case e.Arrived:
		return s.Release().Replies
	case e.Find != "":
		return s.Found(e.Find, "", false).Replies
	}
	return nil
}

// Serve answers a rank until its connection ends, which is no error, or until it ends the job with an *Abort
// or a *Violation. changed is called when the rank has come to a barrier or has finalized.
func (s *Service) Serve(rank int, changed func()) error {
	in := bufio.NewReaderSize(s.conns[rank], maxLine)
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return &Violation{rank, fmt.Sprintf("a line longer than %d bytes", maxLine)}
		}
		if err != nil {
			return nil
		}
		s.mu.Lock()
		replies, err := s.server.handle(rank, string(line[:len(line)-1]))
		state := s.server.State(rank)
		s.mu.Unlock()
		if err != nil {
			return err
		}
		for _, r := range replies {
			// A rank that cannot be written to is ending, and its end is noticed elsewhere.
			conn := s.conns[r.Rank]
			conn.SetWriteDeadline(time.Now().Add(replyTimeout))
			conn.Write([]byte(r.Line))
		}
		if state == InBarrier || state == Finalized || len(replies) > 1 {
			changed()
		}
	}
}
