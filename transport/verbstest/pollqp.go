package verbstest

import "github.com/weft-mpi/weft/transport"

var pollQPChecks = []Check{
	{"PollQP/TakesInWhatHasComeForOneOfTwo", func(t *trial) {
		nodes := t.ranks(3, shape{})
		a, b, c := nodes[0], nodes[1], nodes[2]
		toB, fromB := t.connect(a, b)
		toC, fromC := t.connect(a, c)
		t.needs(a.dev.Query().PollQP, "queue pairs that are polled alone")
		dst := [2]transport.MR{a.memory(500, all), a.memory(500, all)}
		src := [2]transport.MR{b.memory(500, all), c.memory(500, all)}
		into := a.memory(500, all) // contents do not matter
		alone := 0
		for i := range uint64(50) {
			t.must(toB.PostRecv(recv(100+i, into)))
			t.must(toC.PostRecv(recv(200+i, into)))
			for k, qp := range []transport.QP{fromB, fromC} {
				fill(src[k].Bytes(), uint64(k), i)
				t.must(qp.PostSend(write(1, src[k], dst[k])))
				t.must(qp.PostSend(send(2, src[k])))
			}
			t.until("what one has written", func() bool {
				before := check(dst[0].Bytes(), 0, i) == nil
				polled, came := toB.PollQP()
				if polled {
					alone++
				} else {
					a.poll()
				}
				there := check(dst[0].Bytes(), 0, i) == nil
				if polled && there && !before && !came {
					t.failf("PollQP placed what had come, and said that nothing came")
				}
				return there
			}, b, c)
			seen := map[uint64]transport.Status{}
			for _, wc := range t.take(a, 2, a, b, c) {
				seen[wc.ID] = wc.Status
			}
			if len(seen) != 2 || seen[100+i] != transport.StatusSuccess ||
				seen[200+i] != transport.StatusSuccess {
				t.failf("completions %v of two messages, want successes of %d and %d", seen, 100+i, 200+i)
			}
			t.must(check(dst[1].Bytes(), 1, i))
			t.take(b, 2, a, b, c)
			t.take(c, 2, a, b, c)
		}
		if alone == 0 {
			t.failf("PollQP did nothing, ever")
		}
		t.none(a, b, c)
		fromB.Abort(nil)
		t.until("the end of the connection", func() bool {
			if polled, _ := toB.PollQP(); !polled {
				a.poll()
			}
			return toB.State() == transport.StateError
		}, b)
		toB.PollQP() // although nothing is left
	}},
}
