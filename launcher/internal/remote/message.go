package remote

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// Data goes as it is, after its rank; everything else is rare and goes as JSON.

func rankOf(rank int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(rank)) }

// appendCommand appends the frame of a command.
func appendCommand(b []byte, c agent.Command) ([]byte, error) {
	switch c := c.(type) {
	case agent.Start:
		return appendJSON(b, kindStart, c)
	case agent.Halt:
		return appendFrame(b, kindHalt), nil
	case agent.Signal:
		return appendJSON(b, kindSignal, c)
	case agent.Reply:
		return appendFrame(b, kindReply, rankOf(c.Rank), []byte(c.Line)), nil
	case agent.HangUp:
		return appendFrame(b, kindHangUp, rankOf(c.Rank)), nil
	case agent.Input:
		return appendFrame(b, kindInput, rankOf(c.Rank), c.Data), nil
	case agent.Pause:
		return appendJSON(b, kindPause, c)
	case agent.Ask:
		return appendJSON(b, kindAsk, c)
	case agent.Records:
		return appendJSON(b, kindRecords, c)
	case agent.Failed:
		return appendFrame(b, kindFailed, rankOf(c.Rank)), nil
	}
	return nil, fmt.Errorf("%w: a command %T has no frame", errProtocol, c)
}

// parseCommand reads the body of a command's frame.
func parseCommand(k kind, body []byte) (agent.Command, error) {
	switch k {
	case kindStart:
		return parseJSON[agent.Start](k, body)
	case kindHalt:
		return agent.Halt{}, nil
	case kindSignal:
		return parseJSON[agent.Signal](k, body)
	case kindReply:
		rank, line, err := splitRank(k, body)
		return agent.Reply{Rank: rank, Line: string(line)}, err
	case kindHangUp:
		rank, _, err := splitRank(k, body)
		return agent.HangUp{Rank: rank}, err
	case kindInput:
		rank, data, err := splitRank(k, body)
		return agent.Input{Rank: rank, Data: data}, err
	case kindPause:
		c, err := parseJSON[agent.Pause](k, body)
		if err == nil && c.Stream >= agent.Streams {
			err = fmt.Errorf("%w: stream %d", errProtocol, c.Stream)
		}
		return c, err
	case kindAsk:
		return parseJSON[agent.Ask](k, body)
	case kindRecords:
		return parseJSON[agent.Records](k, body)
	case kindFailed:
		rank, _, err := splitRank(k, body)
		return agent.Failed{Rank: rank}, err
	}
	return nil, fmt.Errorf("%w: a frame of kind %d is no command", errProtocol, k)
}

// appendEvent appends the frame of an event. Lost is no event of the far side.
func appendEvent(b []byte, e agent.Event) ([]byte, error) {
	switch e := e.(type) {
	case agent.Started:
		return appendJSON(b, kindStarted, e)
	case agent.NotStarted:
		return appendJSON(b, kindNotStarted, e)
	case agent.AllStarted:
		return appendFrame(b, kindAllStarted), nil
	case agent.Exited:
		return appendJSON(b, kindExited, e)
	case agent.Stopped:
		return appendJSON(b, kindStopped, e)
	case agent.Continued:
		return appendJSON(b, kindContinued, e)
	case agent.Output:
		return appendFrame(b, kindOutput, rankOf(e.Rank), []byte{byte(e.Stream)}, e.Data), nil
	case agent.OutputEnd:
		return appendFrame(b, kindOutputEnd, rankOf(e.Rank)), nil
	case agent.PMILine:
		return appendFrame(b, kindPMILine, rankOf(e.Rank), []byte(e.Line)), nil
	case agent.PMIClosed:
		return appendFrame(b, kindPMIClosed, rankOf(e.Rank)), nil
	case agent.InputTaken:
		return appendJSON(b, kindInputTaken, e)
	case agent.Quiet:
		return appendFrame(b, kindQuiet, rankOf(e.Rank)), nil
	case agent.Moving:
		return appendFrame(b, kindMoving, rankOf(e.Rank)), nil
	case agent.Answer:
		return appendFrame(b, kindAnswer, rankOf(e.Rank), e.Snapshot), nil
	case agent.Sampled:
		return appendFrame(b, kindSampled, rankOf(e.Rank), e.Sample), nil
	case agent.Recorded:
		return appendFrame(b, kindRecorded, rankOf(e.Rank), e.Events), nil
	case agent.Deposit:
		last := byte(0)
		if e.Last {
			last = 1
		}
		return appendFrame(b, kindDeposit, rankOf(e.Rank), []byte{byte(e.What), last}, e.Data), nil
	}
	return nil, fmt.Errorf("%w: an event %T has no frame", errProtocol, e)
}

// parseEvent reads the body of an event's frame, and returns the rank that it concerns, -1 for none.
func parseEvent(k kind, body []byte) (e agent.Event, rank int, err error) {
	switch k {
	case kindStarted:
		v, err := parseJSON[agent.Started](k, body)
		return v, v.Rank, err
	case kindNotStarted:
		v, err := parseJSON[agent.NotStarted](k, body)
		return v, v.Rank, err
	case kindAllStarted:
		return agent.AllStarted{}, -1, nil
	case kindExited:
		v, err := parseJSON[agent.Exited](k, body)
		return v, v.Rank, err
	case kindStopped:
		v, err := parseJSON[agent.Stopped](k, body)
		return v, v.Rank, err
	case kindContinued:
		v, err := parseJSON[agent.Continued](k, body)
		return v, v.Rank, err
	case kindOutput:
		rank, rest, err := splitRank(k, body)
		if err == nil && (len(rest) == 0 || rest[0] >= agent.Streams) {
			err = fmt.Errorf("%w: output of no stream", errProtocol)
		}
		if err != nil {
			return nil, 0, err
		}
		return agent.Output{Rank: rank, Stream: agent.Stream(rest[0]), Data: rest[1:]}, rank, nil
	case kindOutputEnd:
		rank, _, err := splitRank(k, body)
		return agent.OutputEnd{Rank: rank}, rank, err
	case kindPMILine:
		rank, line, err := splitRank(k, body)
		return agent.PMILine{Rank: rank, Line: string(line)}, rank, err
	case kindPMIClosed:
		rank, _, err := splitRank(k, body)
		return agent.PMIClosed{Rank: rank}, rank, err
	case kindInputTaken:
		v, err := parseJSON[agent.InputTaken](k, body)
		return v, v.Rank, err
	case kindQuiet:
		rank, _, err := splitRank(k, body)
		return agent.Quiet{Rank: rank}, rank, err
	case kindMoving:
		rank, _, err := splitRank(k, body)
		return agent.Moving{Rank: rank}, rank, err
	case kindAnswer:
		rank, data, err := splitRank(k, body)
		return agent.Answer{Rank: rank, Snapshot: data}, rank, err
	case kindSampled:
		rank, data, err := splitRank(k, body)
		return agent.Sampled{Rank: rank, Sample: data}, rank, err
	case kindRecorded:
		rank, data, err := splitRank(k, body)
		return agent.Recorded{Rank: rank, Events: data}, rank, err
	case kindDeposit:
		rank, data, err := splitRank(k, body)
		if err == nil && len(data) < 2 {
			err = fmt.Errorf("%w: a deposit of no kind", errProtocol)
		}
		if err != nil {
			return nil, 0, err
		}
		return agent.Deposit{Rank: rank, What: snapshot.Deposit(data[0]), Last: data[1] != 0, Data: data[2:]},
			rank, nil
	}
	return nil, 0, fmt.Errorf("%w: a frame of kind %d is no event", errProtocol, k)
}

func appendJSON(b []byte, k kind, v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return appendFrame(b, k, body), nil
}

func parseJSON[T any](k kind, body []byte) (v T, err error) {
	if err = json.Unmarshal(body, &v); err != nil {
		err = fmt.Errorf("%w: a frame of kind %d: %w", errProtocol, k, err)
	}
	return v, err
}

func splitRank(k kind, body []byte) (rank int, rest []byte, err error) {
	if len(body) < 4 {
		return 0, nil, fmt.Errorf("%w: a frame of kind %d names no rank", errProtocol, k)
	}
	return int(binary.BigEndian.Uint32(body)), body[4:], nil
}
