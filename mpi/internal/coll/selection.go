package coll

import (
	"fmt"
	"strings"
)

// Selection has the algorithms that are forced by name or chosen by tables, and whether choices are
// explained. The zero Selection forces nothing.
type Selection struct {
	rules   [operationCount][]rule
	Tables  []string              // the files named, which the caller reads
	forced  [operationCount]uint8 // the index of the algorithm, plus one
	explain bool
}

// tableSuffix is the suffix of the name of a file with a table.
const tableSuffix = ".json"

// ParseSelection reads a selection such as "allreduce:ring,bcast:binomial,explain". A word that ends in .json
// names a table (see ReadTable).
func ParseSelection(text string) (Selection, error) {
	var ch Selection
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		if word == "explain" {
			ch.explain = true
			continue
		}
		if strings.HasSuffix(word, tableSuffix) {
			ch.Tables = append(ch.Tables, word)
			continue
		}
		name, algorithm, _ := strings.Cut(word, ":")
		if err := ch.force(name, algorithm); err != nil {
			return Selection{}, err
		}
	}
	return ch, nil
}

func (ch *Selection) force(name, algorithm string) error {
	o, i, err := find(name, algorithm)
	if err != nil {
		return fmt.Errorf("%w; write OPERATION:ALGORITHM, such as allreduce:ring, the name of a file that "+
			"ends in .json, or explain", err)
	}
	ch.forced[o] = uint8(i + 1)
	return nil
}

// Reason is why an algorithm was selected. A higher reason takes precedence over a lower one.
type Reason uint8

const (
	Chosen Reason = iota
	FromTable
	Forced
)

// ForcesMailboxes reports whether a forced algorithm uses mailboxes.
func (ch *Selection) ForcesMailboxes() bool {
	for o, i := range ch.forced {
		op, forced := &operations[o], int(i)
		if forced > 0 && (forced == op.direct || forced == op.doubling || forced == op.pieces ||
			forced == op.pull) {
			return true
		}
	}
	return false
}

// Explain reports whether choices are to be explained.
func (ch *Selection) Explain() bool { return ch.explain }

// Build writes the schedule of a call: by the forced algorithm if there is one that can carry it out, else by
// that of a table, else by the one that suits it best. It returns the algorithm's name and why it was taken.
func (ch *Selection) Build(s *Schedule, c *Call) (name string, reason Reason) {
	s.Reset()
	op := &operations[c.Operation]
	i := int(ch.forced[c.Operation]) - 1
	reason = Forced
	if i < 0 || !op.may(i, c) {
		i, reason = ch.fromTable(c), FromTable
	}
	if i < 0 {
		i, reason = op.best(c), Chosen
	}
	op.algorithms[i].build(s, c)
	return op.algorithms[i].name, reason
}

// Algorithms returns the names of the algorithms of an operation.
func Algorithms(o Operation) []string {
	var names []string
	for _, a := range operations[o].algorithms {
		names = append(names, a.name)
	}
	return names
}

// Operations returns all operations.
func Operations() []Operation {
	all := make([]Operation, operationCount)
	for o := range all {
		all[o] = Operation(o)
	}
	return all
}

func commutative(c *Call) bool { return c.Commutative }

func sizePowerOfTwo(c *Call) bool { return powerOfTwo(c.Size) }
