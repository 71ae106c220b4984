package coll

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/weft-mpi/weft/internal/tuning"
)

// A table of choices is a list of rules. The first one that holds for a call, and whose algorithm can carry
// it out, decides:
//
//	[{"operation": "Allreduce", "minRanks": 4, "maxBytes": 65536, "algorithm": "ring"}]
//
// All ranks need the same table.

// rule is a checked rule.
type rule struct {
	tuning.Rule
	index int // of the algorithm
}

// ReadTable adds the rules of a table to a selection. Algorithms forced by name take precedence.
func (ch *Selection) ReadTable(text []byte) error {
	var list []tuning.Rule
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		return fmt.Errorf("the table is no list of rules: %w", err)
	}
	if d.More() {
		return fmt.Errorf("something follows the list of rules")
	}
	for i, of := range list {
		o, index, err := find(of.Operation, of.Algorithm)
		switch {
		case err != nil:
		case of.MinRanks < 0 || of.MaxRanks < 0 || of.MinBytes < 0 || of.MaxBytes < 0:
			err = fmt.Errorf("a bound is negative")
		case of.MaxRanks > 0 && of.MaxRanks < of.MinRanks || of.MaxBytes > 0 && of.MaxBytes < of.MinBytes:
			err = fmt.Errorf("an upper bound is below the lower one")
		case (of.MinBytes > 0 || of.MaxBytes > 0) && !sameBytes(o):
			err = fmt.Errorf("the ranks of %v have different lengths: a rule for it has no bytes", o)
		}
		if err != nil {
			return fmt.Errorf("rule %d of the table: %w", i+1, err)
		}
		ch.rules[o] = append(ch.rules[o], rule{of, index})
	}
	return nil
}

// sameBytes reports whether all ranks see the same length of a call, and so choose alike by it.
func sameBytes(o Operation) bool {
	switch o {
	case OpGatherv, OpScatterv, OpAllgatherv, OpAlltoallv, OpReduceScatter,
		OpNeighborAllgather, OpNeighborAllgatherv, OpNeighborAlltoall, OpNeighborAlltoallv:
		return false
	}
	return true
}

// holds reports whether a rule applies to a call.
func (r *rule) holds(c *Call) bool {
	n := c.bytes()
	return c.Size >= r.MinRanks && (r.MaxRanks == 0 || c.Size <= r.MaxRanks) &&
		n >= r.MinBytes && (r.MaxBytes == 0 || n <= r.MaxBytes)
}

// fromTable returns the index of the algorithm that a table names for a call; -1 if none does.
func (ch *Selection) fromTable(c *Call) int {
	for i := range ch.rules[c.Operation] {
		r := &ch.rules[c.Operation][i]
		if r.holds(c) && operations[c.Operation].may(r.index, c) {
			return r.index
		}
	}
	return -1
}

// find returns an operation and the index of one of its algorithms, by name.
func find(name, algorithm string) (Operation, int, error) {
	for o := range operations {
		op := &operations[o]
		if !strings.EqualFold(op.name, name) {
			continue
		}
		for i := range op.algorithms {
			if op.algorithms[i].name == algorithm {
				return Operation(o), i, nil
			}
		}
		return 0, 0, fmt.Errorf("%s has no algorithm %q; it has %s", op.name, algorithm,
			strings.Join(Algorithms(Operation(o)), ", "))
	}
	return 0, 0, fmt.Errorf("no collective is called %q", name)
}
