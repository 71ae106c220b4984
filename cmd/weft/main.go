// Command weft starts programs as the ranks of a job, and tells what it knows of the machine.
//
// Called by the name mpirun or mpiexec, it behaves as "weft run".
package main

import "github.com/weft-mpi/weft/cmd/internal/cli"

func main() { cli.Main() }
