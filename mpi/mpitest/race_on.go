//go:build race

package mpitest

import "runtime"

// raceDisable makes the race detector ignore the synchronization of the calling goroutine.
func raceDisable() { runtime.RaceDisable() }

func raceEnable() { runtime.RaceEnable() }
