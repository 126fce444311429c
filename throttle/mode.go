package throttle

import (
	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// Mode says whether the limits of a scope, or of a whole throttle, are enforced.
type Mode int

const (
	// Enforce: limits and pauses keep jobs back. It is the default.
	Enforce Mode = iota
	// Shadow: jobs are counted and no job is delayed; Reservation.Shadow says what would have
	// kept a job back.
	Shadow
	// Off: no job is counted, and none is kept back.
	Off
)

// String names the mode in lower case.
func (m Mode) String() string {
	switch m {
	case Enforce:
		return "enforce"
	case Shadow:
		return "shadow"
	case Off:
		return "off"
	}
	return "unknown"
}

func (m Mode) valid() bool { return m >= Enforce && m <= Off }

func (m Mode) counted() line.Mode { return line.Mode(wire.Modes[m]) }

// MarshalText returns the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the mode's name. The error is an *OptionError.
func (m *Mode) UnmarshalText(text []byte) error {
	for known := Enforce; known <= Off; known++ {
		if known.String() == string(text) {
			*m = known
			return nil
		}
	}
	return &OptionError{Field: "mode", Value: string(text), Reason: "is none of enforce, shadow, off"}
}
