package coll

import (
	"fmt"
	"strings"
)

// Selection has the algorithms that are forced by name, and whether choices are explained. The zero Selection
// forces nothing.
type Selection struct {
	forced  [operationCount]uint8 // the index of the algorithm, plus one
	explain bool
}

// ParseSelection reads a selection such as "allreduce:ring,bcast:binomial,explain".
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
		name, algorithm, _ := strings.Cut(word, ":")
		if err := ch.force(name, algorithm); err != nil {
			return Selection{}, err
		}
	}
	return ch, nil
}

func (ch *Selection) force(name, algorithm string) error {
	for o := range operations {
		op := &operations[o]
		if !strings.EqualFold(op.name, name) {
			continue
		}
		for i := range op.algorithms {
			if op.algorithms[i].name == algorithm {
				ch.forced[o] = uint8(i + 1)
				return nil
			}
		}
		return fmt.Errorf("%s has no algorithm %q; it has %s", op.name, algorithm,
			strings.Join(Algorithms(Operation(o)), ", "))
	}
	return fmt.Errorf("no collective is called %q; write OPERATION:ALGORITHM, such as allreduce:ring, or "+
		"explain", name)
}

// ForcesMailboxes reports whether an algorithm is forced that goes through mailboxes.
func (ch *Selection) ForcesMailboxes() bool {
	for o, i := range ch.forced {
		if i > 0 && (int(i) == operations[o].direct || int(i) == operations[o].pull) {
			return true
		}
	}
	return false
}

// Explain reports whether choices are to be explained.
func (ch *Selection) Explain() bool { return ch.explain }

// Build writes the schedule of a call, by the forced algorithm if there is one that fits, else by the one
// that suits it best. It returns the algorithm's name and whether it was forced.
func (ch *Selection) Build(s *Schedule, c *Call) (name string, forced bool) {
	s.Reset()
	op := &operations[c.Operation]
	i := int(ch.forced[c.Operation]) - 1
	if forced = i >= 0 && op.may(i, c); !forced {
		i = op.suits(c)
	}
	op.algorithms[i].build(s, c)
	return op.algorithms[i].name, forced
}

// Algorithms are the names of the algorithms of an operation.
func Algorithms(o Operation) []string {
	var names []string
	for _, a := range operations[o].algorithms {
		names = append(names, a.name)
	}
	return names
}

// Operations are all operations.
func Operations() []Operation {
	all := make([]Operation, operationCount)
	for o := range all {
		all[o] = Operation(o)
	}
	return all
}

func commutative(c *Call) bool { return c.Commutative }

func sizePowerOfTwo(c *Call) bool { return powerOfTwo(c.Size) }
