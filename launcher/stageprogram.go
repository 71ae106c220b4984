package launcher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
	"path/filepath"

	"github.com/weft-mpi/weft/launcher/internal/remote"
)

// A stageReply is an agent's answer when it has received a whole program.
type stageReply struct {
	File    string // what is executed
	Problem string // why there is none
}

// stageAll copies missing programs to a host, from files here, and records their files in its plan.
func (n *node) stageAll(ctx context.Context, files []string, tell func(string, ...any)) error {
	copies := make(map[string]string) // by file here: the file there
	for _, i := range n.plan.Missing {
		if i < 0 || i >= len(n.plan.Files) {
			return fmt.Errorf("host %s: its agent asks for program %d, which does not exist", n.name, i)
		}
		if copies[files[i]] == "" {
			file, err := n.stage(ctx, i, files[i], tell)
			if err != nil {
				return err
			}
			copies[files[i]] = file
		}
		n.plan.Files[i] = copies[files[i]]
	}
	return nil
}

// stage copies a program to a host and returns the file there.
func (n *node) stage(ctx context.Context, program int, from string, tell func(string, ...any)) (string,
	error) {
	f, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var reply stageReply
	if err := n.remote.Stage(ctx, program, f, &reply); err != nil {
		return "", err
	}
	if reply.Problem != "" {
		return "", fmt.Errorf("host %s: %s", n.name, reply.Problem)
	}
	tell("host %s: %s is copied", n.name, filepath.Base(from))
	return reply.File, nil
}

// A stager is the agent's side of staging: it writes programs into a folder of the job, one after the other.
type stager struct {
	folder func() (string, error) // makes one that is removed with the job
	wanted []programRequest       // by program

	program int
	file    *os.File // nil between programs
	hash    hash.Hash
	problem error // the first error; the rest of the program is skipped
}

// take handles the next part of a program, or its end if the part is empty. It answers the end.
func (s *stager) take(program int, part []byte) ([]byte, error) {
	if program >= len(s.wanted) || s.file != nil && program != s.program {
		return nil, fmt.Errorf("a part of program %d, which was not asked for", program)
	}
	if s.file == nil && s.problem == nil {
		s.program, s.hash = program, sha256.New()
		s.file, s.problem = s.create(s.wanted[program].Name)
	}
	if s.problem == nil && len(part) > 0 {
		s.hash.Write(part)
		_, s.problem = s.file.Write(part)
	}
	if len(part) > 0 {
		return nil, nil
	}
	return remote.Marshal(s.finish())
}

// create makes the file of a program.
func (s *stager) create(name string) (*os.File, error) {
	dir, err := s.folder()
	if err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(dir, filepath.Base(name)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
}

// finish closes the file of a program and checks its content.
func (s *stager) finish() (reply stageReply) {
	if s.file != nil {
		reply.File = s.file.Name()
		if err := s.file.Close(); s.problem == nil {
			s.problem = err
		}
	}
	want := s.wanted[s.program]
	switch {
	case s.problem != nil:
		reply.Problem = fmt.Sprintf("%s cannot be copied: %v", want.Name, s.problem)
	case hex.EncodeToString(s.hash.Sum(nil)) != want.Hash:
		reply.Problem = fmt.Sprintf("%s has changed while it was copied", want.Name)
	}
	s.file, s.problem = nil, nil
	return reply
}
