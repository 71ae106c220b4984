//go:build !race

package mpitest

func raceDisable() {}

func raceEnable() {}
