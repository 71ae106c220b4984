package transport

// Looker is implemented by a QP that takes in what has come for it without a look at the others of its completion queue. Who waits for one peer of many
// gets to know sooner what that one has sent.
type Looker interface {
	// Look makes a pass over this queue pair alone. It tells whether it has, and whether anything came. What that completes Poll gives, which is to be
	// called now and then all the same, for the others, and at once where Look did nothing.
	Look() (looked, came bool)
}
