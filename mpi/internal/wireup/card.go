package wireup

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Card is how a rank is reached: the address of its endpoint by the name of the provider. Its text is
// NAME=ADDRESS;…
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
			return nil, fmt.Errorf("%q is no card: NAME=ADDRESS;… is", text)
		}
		c[name] = addr
	}
	return c, nil
}
