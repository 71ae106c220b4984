package engine

import (
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/shm"
)

// TestHub_CrowdedWhereEndpointsOutnumberCores: goroutines that wait keep neither a lock nor a core for long from
// when more endpoints are in use than the rank has cores, at every endpoint.
func TestHub_CrowdedWhereEndpointsOutnumberCores(t *testing.T) {
	for _, c := range []struct {
		cores     int
		crowdedAt int // endpoints in use
	}{{1, 2}, {2, 3}, {4, 5}, {0, 5}} { // ranks that share their cores give them up in any case
		h := worldOf(t, shmDevices(t, 1, shm.Options{}), Config{SpinTime: time.Second, Cores: c.cores,
			Endpoints: 4})[0].hub
		for used := 1; used <= 4; used++ {
			_, err := h.Endpoint(used - 1)
			require.NoError(t, err)
			crowded := used >= c.crowdedAt
			require.Equal(t, crowded, h.oversubscribed.Load(), "%d endpoints, %d cores", used, c.cores)
			want := math.MaxInt
			if crowded {
				want = oversubscribedLooks
			}
			for e := range h.each() {
				require.Equal(t, want, e.waiting.maxLooks, "%d endpoints, %d cores", used, c.cores)
			}
		}
	}
}

// refusing is a device that can refuse to make a completion queue, or makes one that cannot be waited for. It
// counts its handlers.
type refusing struct {
	transport.Device
	queue, wait bool
	handlers    int
}

type unwaitable struct{ transport.CQ }

func (unwaitable) Descriptor() int { return -1 }

func (d *refusing) CreateCQ(depth int, h transport.HandlerID) (transport.CQ, error) {
	if d.queue {
		return nil, errNoRoom
	}
	q, err := d.Device.CreateCQ(depth, h)
	if d.wait {
		return unwaitable{q}, err
	}
	return q, err
}

func (d *refusing) SetCompletionHandler(c transport.HandlerConfig) (transport.HandlerID, error) {
	d.handlers++
	return d.Device.SetCompletionHandler(c)
}

func (d *refusing) CloseHandler(h transport.HandlerID) error {
	d.handlers--
	return d.Device.CloseHandler(h)
}

// Nobody waits for the queues of an endpoint that could not be made, and it leaves no handler.
func TestHub_EndpointThatCannotBeMade(t *testing.T) {
	cores, err := sys.Affinity()
	require.NoError(t, err)
	for _, c := range []struct {
		name     string
		handlers []int
		refuse   func(d *refusing)
	}{
		{"no queue", nil, func(d *refusing) { d.queue = true }},
		{"no queue for a handler", cores[:1], func(d *refusing) { d.queue = true }},
		{"no wait", nil, func(d *refusing) { d.wait = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			conf := Config{Identity: transport.Identity{Job: "test", Size: 1}, Endpoints: 2,
				HandlerCores: c.handlers, Log: slog.New(slog.DiscardHandler)}
			var devices []*refusing
			for i, d := range tcpDevices(t, 2) {
				devices = append(devices, &refusing{Device: d})
				conf.Fabrics = append(conf.Fabrics, Fabric{Device: devices[i]})
			}
			h, err := NewHub(conf)
			require.NoError(t, err)
			defer func() { require.NoError(t, h.Destroy(ErrFinalized)) }()
			before := *devices[0]
			c.refuse(devices[1])
			_, err = h.Endpoint(1)
			require.Error(t, err)
			require.Len(t, h.queues.queues, 2)
			require.Equal(t, before.handlers, devices[0].handlers)
			require.Equal(t, before.handlers, devices[1].handlers)
			devices[1].queue, devices[1].wait = false, false
			_, err = h.Endpoint(1)
			require.NoError(t, err)
			require.Len(t, h.queues.queues, 4)
		})
	}
}
