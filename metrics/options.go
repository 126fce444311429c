package metrics

import (
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// defaultTimeout is the default of Options.Timeout.
const defaultTimeout = time.Second

// maxKeys bounds Options.Keys: for each watched throttle, each key is a call to Redis with every scrape, and
// a series for each of its limits.
const maxKeys = 100

// Options are the settings of a Collector that have a default. The zero value and
// nil are both ready to use.
type Options struct {
	// Keys lists, by the scope's name, the keys whose used ratio, served share and waiting flows are reported one
	// by one: {"tenant": {"acme"}}. By default no key is reported. At most 100 in all, in UTF-8.
	Keys map[string][]string
	// Timeout bounds the calls to Redis of one scrape. Values that Redis has not returned by then
	// are missing from this scrape. 0 means 1 s; 1 ms to a minute. Keep it below Prometheus'
	// scrape_timeout.
	Timeout time.Duration
}

// withDefaults returns a checked copy with every default filled in.
func (o *Options) withDefaults() (Options, error) {
	var options Options
	if o != nil {
		options = *o
	}
	if options.Timeout == 0 {
		options.Timeout = defaultTimeout
	}
	if options.Timeout < time.Millisecond || options.Timeout > time.Minute {
		return options, &throttle.OptionError{Field: "Timeout", Value: options.Timeout, Reason: "is not between 1ms and 1m"}
	}
	options.Keys = maps.Clone(options.Keys)
	count := 0
	for scope, keys := range options.Keys {
		if scope == throttle.Global || slices.Contains(keys, "") {
			return options, &throttle.OptionError{Field: "Keys", Value: scope, Reason: "has no keys, or an empty one"}
		}
		if slices.ContainsFunc(keys, func(key string) bool { return !utf8.ValidString(key) }) {
			return options, &throttle.OptionError{Field: "Keys", Value: scope,
				Reason: "has a key that is not UTF-8, as labels have to be"}
		}
		keys = slices.Sorted(slices.Values(keys))
		options.Keys[scope] = slices.Compact(keys) // a duplicate series would fail the scrape
		count += len(keys)
	}
	if count > maxKeys {
		return options, &throttle.OptionError{Field: "Keys", Value: count,
			Reason: fmt.Sprintf("more than %d keys in all", maxKeys)}
	}
	return options, nil
}
