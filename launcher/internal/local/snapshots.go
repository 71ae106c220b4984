package local

import (
	"bufio"
	"time"

	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// readSnapshots reports what the rank says of its state, until the connection ends, or the rank breaks the
// protocol. The rank goes on without it.
func (p *process) readSnapshots() {
	defer p.snapshots.Close()
	in := bufio.NewReader(p.snapshots)
	for {
		kind, body, err := snapshot.ReadFrame(in)
		if err != nil {
			return
		}
		switch kind {
		case snapshot.Quiet:
			p.agent.emit(agent.Quiet{Rank: p.id})
		case snapshot.Moving:
			p.agent.emit(agent.Moving{Rank: p.id})
		case snapshot.Answer:
			p.agent.emit(agent.Answer{Rank: p.id, Snapshot: body})
		case snapshot.Sampled:
			p.agent.emit(agent.Sampled{Rank: p.id, Sample: body})
		case snapshot.Deposited:
			d := agent.Deposit{Rank: p.id, What: snapshot.Deposit(body[0]), Last: body[1] != 0,
				Data: body[2:]}
			p.agent.emit(d)
			if d.Last && d.What != snapshot.Stacks {
				p.ask(snapshot.Taken)
			}
		}
	}
}

// ask sends the rank a question. One that takes no questions is not waited for.
func (p *process) ask(question byte) {
	p.snapshots.SetWriteDeadline(time.Now().Add(time.Millisecond))
	p.snapshots.Write([]byte{question})
}

// tellFailed tells the rank that another one has failed. A rank reads this connection all the time.
func (p *process) tellFailed(rank int) {
	p.snapshots.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	p.snapshots.Write(snapshot.AppendFailed(nil, rank))
}
