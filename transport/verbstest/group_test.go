package verbstest

import "testing"

// Every check is counted: its name has a group, and no other check has the name.
func TestGroups_EveryCheckHasOne(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Checks() {
		if GroupOf(c.Name) == "" {
			t.Errorf("%s belongs to no group: see group.go", c.Name)
		}
		if seen[c.Name] {
			t.Errorf("%s is the name of two checks", c.Name)
		}
		seen[c.Name] = true
	}
}
