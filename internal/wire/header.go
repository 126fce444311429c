package wire

import (
	"maps"
	"slices"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// Header is the first two arguments of every script.
type Header struct {
	line.Settings
	Kept  int64 // ms that the line's keys live after the last write
	Steps int64 // the most that one call may take
}

// Texts returns the two arguments of a header.
func (h Header) Texts() [2]string {
	var scopes strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h.Scopes)) {
		scope := h.Scopes[name]
		scopes.WriteString(name + "=" + string(scope.Mode) + ":" + line.LimitsText(scope.Limits) + ";")
	}
	return [2]string{integers(' ', h.Lookahead, h.Grace, h.Kept, h.Lower, flag(h.Counts), h.Steps), scopes.String()}
}

// ReadHeader reads the two arguments of a header.
func ReadHeader(times, scopes string) (Header, error) {
	v := words(times)
	h := Header{Settings: line.Settings{Scopes: make(map[string]line.Scope)}}
	h.Lookahead, h.Grace, h.Kept, h.Lower = v.Natural(), v.Natural(), v.Natural(), v.Natural()
	h.Counts, h.Steps = v.Flag(), v.Natural()
	for text := range strings.SplitSeq(strings.TrimSuffix(scopes, ";"), ";") {
		name, rest, _ := strings.Cut(text, "=")
		mode, limits, is := strings.Cut(rest, ":")
		list, err := line.ParseLimits(limits)
		if !is || len(mode) != 1 || err != nil {
			return Header{}, ErrUnreadable
		}
		h.Scopes[name] = line.Scope{Mode: line.Mode(mode[0]), Limits: list}
	}
	return h, v.Err()
}
