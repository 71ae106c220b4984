// Package chaostest runs jobs that something goes wrong in, and checks that they end as they should: with the
// right exit status and the right cause, in time, and with nothing left behind.
//
// A seed makes a [Plan]: how many ranks over which fabric, which fault strikes, whom and when. The ranks are
// the program itself that calls [Play], and read the seed from their environment, so that all of them and the
// harness know the same plan. [Plan.Run] starts the job with weft's own command, and tells what is wrong with
// its end. A fault that did not strike is wrong, too.
//
//	go run ./launcher/internal/chaostest/chaos -jobs 5000 -seed 1
package chaostest
