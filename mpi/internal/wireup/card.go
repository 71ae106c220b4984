package wireup

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Card is a rank's business card, as PMI calls it: the address of the rank's listener for each provider, by
// name. A provider carries out the verbs; the user's settings call it a fabric. Its text is NAME=ADDRESS;…
type Card map[string]string

func (c Card) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, name+"="+c[name])
	}
	return strings.Join(parts, ";")
}

// ParseCard reads the text of a card.
func ParseCard(text string) (Card, error) {
	c := Card{}
	for part := range strings.SplitSeq(text, ";") {
		name, addr, ok := strings.Cut(part, "=")
		if !ok || name == "" || addr == "" || c[name] != "" {
			return nil, fmt.Errorf("invalid card %q: not of the form NAME=ADDRESS;…", text)
		}
		c[name] = addr
	}
	return c, nil
}
