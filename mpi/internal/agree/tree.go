package agree

// tree is the binary tree of the members that are not known to have failed. Member i is below (i-1)/2, or
// below its next remaining ancestor, or below the root if no ancestor remains.
type tree struct {
	failed []bool
	root   int // the lowest member that has not failed; len(failed) if all have
}

func (t *tree) fail(i int) {
	t.failed[i] = true
	for t.root < len(t.failed) && t.failed[t.root] {
		t.root++
	}
}

// parent returns the member above one; -1 for the root.
func (t *tree) parent(i int) int {
	if i == t.root {
		return -1
	}
	for i > 0 {
		if i = (i - 1) / 2; !t.failed[i] {
			return i
		}
	}
	return t.root
}

// children returns the members directly below one.
func (t *tree) children(i int) []int {
	list := t.top(t.top(nil, 2*i+1), 2*i+2)
	if i == t.root && i > 0 {
		for _, j := range t.top(nil, 0) {
			if j != i {
				list = append(list, j)
			}
		}
	}
	return list
}

// top appends the highest remaining members of a subtree.
func (t *tree) top(list []int, i int) []int {
	if i >= len(t.failed) {
		return list
	}
	if !t.failed[i] {
		return append(list, i)
	}
	return t.top(t.top(list, 2*i+1), 2*i+2)
}
