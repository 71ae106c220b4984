// Package chaostest runs jobs that something goes wrong in, and checks that they end as they should: with the
// right exit status and the right cause, in time, and with nothing left behind.
//
// A seed makes a plan: how many ranks over which fabric, which fault strikes, whom and when. The ranks are
// the test binary itself, and read the seed from their environment, so that all of them and the harness know
// the same plan. The harness starts the job with weft's own command, and tells what is wrong with its end. A
// fault that did not strike is wrong, too.
//
//	go test ./launcher/internal/chaostest -run TestChaos -timeout 0 -chaos.jobs 5000
//	go test ./launcher/internal/chaostest -run TestChaos -chaos.seed 17 -chaos.jobs 1 # one of them again
package chaostest
