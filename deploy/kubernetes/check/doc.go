// Package check holds the files of deploy/kubernetes against the types that Kubernetes publishes. It is a
// module of its own, so that weft does not depend on them.
package check
