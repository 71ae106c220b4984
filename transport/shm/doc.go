// Package shm is the verbs over shared memory, for ranks of one host.
package shm
