//go:build timer

package main

import (
	"log"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

func cancelLater(q *mpi.Request) {
	time.AfterFunc(4*time.Second, func() {
		if err := q.Cancel(); err != nil {
			log.Print(err)
		}
	})
}
