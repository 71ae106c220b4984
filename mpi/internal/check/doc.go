// Package check finds mistakes of programs, for checking mode (WEFT_CHECK=1): what ranks have to pass alike
// and do not, buffers that are used while an operation has them, and what is left over at the end. It does no
// communication itself: package mpi carries headers and signatures to other ranks, and asks here.
package check
