//go:build !timer && !value

package main

func later(func()) {}
