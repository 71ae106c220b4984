package allocation

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseNodeList parses Slurm's notation for many names: "lx[15,18,32-33],login" or "rack[0-3]_blade[00-41]".
// Several brackets make the product, the last one fastest, and leading zeros keep the width.
func ParseNodeList(text string) (names []string, err error) {
	for rest := text; ; {
		var word string
		word, rest, err = cutWord(rest)
		if err != nil {
			return nil, fmt.Errorf("node list %.60q: %w", text, err)
		}
		expanded, err := expand(word, maxHosts-len(names))
		if err != nil {
			return nil, fmt.Errorf("node list %.60q: %w", text, err)
		}
		names = append(names, expanded...)
		if rest == "" {
			return names, nil
		}
		rest = rest[1:] // the comma
	}
}

// cutWord cuts off the text before the first comma outside of brackets. rest begins with the comma.
func cutWord(text string) (word, rest string, err error) {
	inside := false
	for i := range len(text) {
		switch c := text[i]; {
		case c == '[' && inside, c == ']' && !inside:
			return "", "", fmt.Errorf("column %d: %q does not belong here", i+1, c)
		case c == '[' || c == ']':
			inside = c == '['
		case c == ',' && !inside:
			return text[:i], text[i:], nil
		}
	}
	if inside {
		return "", "", fmt.Errorf("no ']' after the last '['")
	}
	return text, "", nil
}

// expand returns the names of a word, at most limit.
func expand(word string, limit int) ([]string, error) {
	names := []string{""}
	for rest := word; rest != ""; {
		before, inside, bracket := strings.Cut(rest, "[")
		numbers := []string{""}
		rest = ""
		if bracket {
			var err error
			if inside, rest, _ = strings.Cut(inside, "]"); inside == "" {
				return nil, fmt.Errorf("empty brackets in %.60q", word)
			}
			if numbers, err = parseRanges(inside); err != nil {
				return nil, err
			}
		}
		if len(names)*len(numbers) > limit {
			return nil, fmt.Errorf("more than %d nodes", maxHosts)
		}
		product := make([]string, 0, len(names)*len(numbers))
		for _, name := range names {
			for _, number := range numbers {
				product = append(product, name+before+number)
			}
		}
		names = product
	}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// parseRanges reads numbers and ranges, such as "15,18,032-033".
func parseRanges(text string) (numbers []string, err error) {
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		low, err1 := strconv.ParseUint(from, 10, 31)
		high, err2 := strconv.ParseUint(to, 10, 31)
		if err1 != nil || err2 != nil || low > high || high-low >= maxHosts {
			return nil, fmt.Errorf("%.40q is neither a number nor a range such as 0-3", part)
		}
		if len(numbers)+int(high-low) >= maxHosts {
			return nil, fmt.Errorf("more than %d nodes", maxHosts)
		}
		for n := low; n <= high; n++ {
			numbers = append(numbers, fmt.Sprintf("%0*d", len(from), n))
		}
	}
	return numbers, nil
}
