package throttle

import "github.com/asynq-throttle/asynq-throttle/internal/wire"

// shares gives the share of each key of the fair scope, by the encoded key.
type shares struct {
	known map[string]int
	ask   func(key string) int
}

func newShares(options Options) shares {
	s := shares{known: make(map[string]int, len(options.Shares)), ask: options.Share}
	for key, share := range options.Shares {
		s.known[wire.Encode(key)] = share
	}
	return s
}

func (s shares) of(encoded string) int64 {
	if share, known := s.known[encoded]; known {
		return int64(share)
	}
	if key, readable := wire.Readable(encoded); s.ask != nil && readable {
		return int64(min(max(1, s.ask(key)), maxShare))
	}
	return 1
}
