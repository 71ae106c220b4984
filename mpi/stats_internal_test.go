package mpi

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Every counter of the engine is one of the public ones.
func TestStats_HaveEveryCounterOfTheEngine(t *testing.T) {
	var s engine.Stats
	s.Channels, s.Endpoints = make([]engine.ChannelStats, 1), make([]engine.EndpointStats, 1)
	s.Endpoints[0].Handlers = make([]engine.HandlerStats, 1)
	n := 0
	var fill func(v reflect.Value) []string
	fill = func(v reflect.Value) (names []string) {
		for i := range v.NumField() {
			f, field := v.Field(i), v.Type().Field(i)
			switch {
			case f.Kind() == reflect.Struct:
				names = append(names, fill(f)...)
				continue
			case f.Kind() == reflect.Slice:
				names = append(names, fill(f.Index(0))...)
				continue
			case !f.CanSet():
				continue
			case f.CanInt():
				n++
				f.SetInt(int64(n))
			case f.CanUint():
				n++
				f.SetUint(uint64(n))
			case f.Kind() == reflect.Bool:
				n++
				f.SetBool(true)
			default:
				f.SetString(field.Name)
			}
			names = append(names, field.Name)
		}
		return names
	}
	names := fill(reflect.ValueOf(&s).Elem())
	require.Greater(t, len(names), 40)
	public := statsOf(s)
	var zero func(v reflect.Value)
	zero = func(v reflect.Value) {
		for i := range v.NumField() {
			switch f := v.Field(i); f.Kind() {
			case reflect.Struct:
				zero(f)
			case reflect.Slice:
				zero(f.Index(0))
			default:
				n--
				if name := v.Type().Field(i).Name; f.Kind() != reflect.String {
					require.False(t, f.IsZero(), "%s", name)
				} else {
					n++
				}
			}
		}
	}
	zero(reflect.ValueOf(public))
	require.Zero(t, n, "counters of the engine that are not public")
}
