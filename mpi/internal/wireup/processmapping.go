package wireup

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weft-mpi/weft/internal/pmi"
)

// mappingKey is the key for the ranks of each host, as defined by MPICH.
const mappingKey = "PMI_process_mapping"

// Hosts returns the number of each rank's host, from 0; nil if the launcher does not give it, or if all ranks
// are on one host. It is the same at all ranks.
func (j *Job) Hosts(ctx context.Context) ([]int, error) {
	if _, elsewhere := j.Neighbors(); !elsewhere || !j.UnderPMI() {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	text, err := j.way.Get(ctx, mappingKey)
	switch {
	case errors.Is(err, pmi.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("which ranks share a host: %w", err)
	}
	return parseMapping(text, int(j.Identity.Size)), nil
}

// parseMapping parses (vector,(FIRST,HOSTS,RANKS),…): each block is a number of consecutive hosts with a
// number of consecutive ranks each. It returns nil if that does not make size ranks.
func parseMapping(text string, size int) (hosts []int) {
	text, ok := strings.CutPrefix(strings.ReplaceAll(text, " ", ""), "(vector,(")
	if !ok {
		return nil
	}
	text, ok = strings.CutSuffix(text, "))")
	if !ok {
		return nil
	}
	for block := range strings.SplitSeq(text, "),(") {
		var numbers [3]int
		words := strings.Split(block, ",")
		if len(words) != len(numbers) {
			return nil
		}
		for i, word := range words {
			n, err := strconv.Atoi(word)
			if err != nil || n < 0 || n > size {
				return nil
			}
			numbers[i] = n
		}
		first, count, ranks := numbers[0], numbers[1], numbers[2]
		if count*ranks > size-len(hosts) {
			return nil
		}
		for host := range count {
			for range ranks {
				hosts = append(hosts, first+host)
			}
		}
	}
	if len(hosts) != size {
		return nil
	}
	return hosts
}
