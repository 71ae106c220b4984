package verbstest

import "testing"

// No two checks have the same name.
func TestChecks_HaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Checks() {
		if seen[c.Name] {
			t.Errorf("%s is the name of two checks", c.Name)
		}
		seen[c.Name] = true
	}
}
