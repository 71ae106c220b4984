//go:build race

package mpitest

import "runtime"

// raceDisable has the race detector take no notice of how the calling goroutine synchronizes with others.
func raceDisable() { runtime.RaceDisable() }

func raceEnable() { runtime.RaceEnable() }
