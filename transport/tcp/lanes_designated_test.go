package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// designated is a pair of sides over three lanes, where side 0 reads from side 1.
type designated struct {
	list     [2]*side
	dst, src transport.MR
}

// longRead is more than a lane takes that nobody reads.
const longRead = 24 << 20

func newDesignated(t *testing.T, o Options) *designated {
	o.Lanes = 3
	d := &designated{list: newCouple(t, o, 64, nil)}
	lanesUp(t, d.list, 3)
	var err error
	d.dst, err = d.list[0].pd.Alloc(longRead, transport.LocalWrite)
	require.NoError(t, err)
	d.src, err = d.list[1].pd.Alloc(longRead, transport.RemoteRead|transport.Unchanging)
	require.NoError(t, err)
	stretch(d.src.Bytes(), 7, 7)
	return d
}

func (d *designated) read(t *testing.T, lane transport.Lane) {
	require.NoError(t, d.list[0].to.PostSend(&transport.SendWR{ID: 5, Op: transport.OpRead, Lane: lane,
		Flags: transport.FlagSignaled, Local: []transport.SGE{{MR: d.dst, Length: longRead}},
		Remote: []transport.Segment{{Key: d.src.Key(), Length: longRead}}}))
}

// cameOver is what has come over a lane, and over all others that are there.
func (d *designated) cameOver(lane transport.Lane) (it, others uint64) {
	for _, l := range d.list[0].to.OpenLanes(nil) {
		if l.Lane == lane {
			it = l.ReadBytes
		} else {
			others += l.ReadBytes
		}
	}
	return it, others
}

func (d *designated) complete(t *testing.T) {
	drive(t, d.list, "the Read", func() bool { return len(d.list[0].wcs) > 0 })
	require.Equal(t, transport.StatusSuccess, d.list[0].wcs[0].Status)
	require.Equal(t, -1, same(d.dst.Bytes(), 7, 7))
	d.list[0].wcs = nil
}

// An answer waits while its lane takes nothing, though others do: what else the responder has to send goes
// over these.
func TestLanes_R1_AnswerWaitsForItsLane(t *testing.T) {
	for _, checksum := range []Checksum{ChecksumNever, ChecksumAlways} {
		d := newDesignated(t, Options{Checksum: checksum})
		for _, l := range d.list[0].to.OpenLanes(nil) {
			before, others := d.cameOver(l.Lane)
			d.read(t, l.Lane)
			b := d.list[1].lanesOf()
			for lane := b.find(uint16(l.Lane - 1)); !lane.blocked; {
				d.list[1].poll() // nobody reads what it sends
			}
			d.list[1].writes(t, d.list[0])
			require.Equal(t, b.q.SQ.Tail, b.q.at.next, "a Write waits behind an answer that waits")
			d.complete(t)
			it, rest := d.cameOver(l.Lane)
			require.Equal(t, uint64(longRead), it-before)
			require.Equal(t, others, rest)
		}
	}
}

// An answer whose lane is lost goes on over the others, whichever end finds the loss.
func TestLanes_R1_AnswerFallsBackWhenItsLaneIsLost(t *testing.T) {
	for end := range 2 {
		d := newDesignated(t, Options{})
		lane := d.list[0].to.OpenLanes(nil)[1].Lane
		d.read(t, lane)
		drive(t, d.list, "a part of the answer", func() bool {
			it, others := d.cameOver(lane)
			require.Zero(t, others)
			return it > 0
		})
		require.Empty(t, d.list[0].wcs)
		require.NoError(t, reset(d.list[end].lanesOf().find(uint16(lane-1)).fd))
		d.complete(t)
		_, others := d.cameOver(lane)
		require.NotZero(t, others)
		require.NotZero(t, d.list[0].to.Lanes().Down)

		d.read(t, lane) // which is no more: any
		d.complete(t)
	}
}
