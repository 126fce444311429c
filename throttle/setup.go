package throttle

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// setup is the part of a Throttle that its calls share: the configuration, the caller of scripts, and what their
// answers have told this process.
type setup struct {
	name    string
	keys    keys
	scopes  []Scope
	fair    string // the fair scope's name, empty for first come, first served
	shares  shares
	header  [2]string // arguments of every script
	options Options
	redis   *caller
	asker   string // names this throttle value in Redis
	line    lineTimer
	means   means
	delays  *startDelays // nil if no scope has a margin
	logged  *rateLimitedLog
	now     func() time.Time // nil in production: Redis' own clock
}

// keys are the Redis keys of one throttle. The scripts build the keys from the prefix. A call declares
// only the control key, which decides to which node of a cluster the call goes.
type keys struct{ prefix, control string }

func newKeys(name string) keys { return keys{wire.Prefix(name), wire.ControlKey(name)} }

// newSetup makes a setup. Its arguments have been checked.
func newSetup(name, fair string, scopes []Scope, options Options, redis *caller) *setup {
	return &setup{
		name:    name,
		keys:    newKeys(name),
		scopes:  copyScopes(scopes),
		fair:    fair,
		shares:  newShares(options),
		header:  header(scopes, options).Texts(),
		options: options,
		redis:   redis,
		asker:   rand.Text()[:16],
		delays:  newStartDelays(scopes),
		logged:  newRateLimitedLog(options.Logger),
	}
}

// Name returns the throttle's name.
func (t *setup) Name() string { return t.name }

// scopeKey checks the name of a scope key.
func (t *setup) scopeKey(ctx context.Context, scope, key string) error {
	if err := t.scopeNamed(ctx, scope); err != nil {
		return err
	}
	switch {
	case scope == Global && key != "":
		return &ArgumentError{Argument: "key", Reason: "is given, and scope " + scope + " has no keys"}
	case scope != Global && key == "":
		return &ArgumentError{Argument: "key", Reason: "is empty, and scope " + scope + " has keys"}
	case wire.IsHash(key):
		return &ArgumentError{Argument: "key", Value: key,
			Reason: "is the hash of a key that is too long to be kept: give the key itself"}
	}
	return nil
}

// scopeNamed checks the name of a scope.
func (t *setup) scopeNamed(ctx context.Context, scope string) error {
	switch {
	case ctx == nil:
		return errNoContext
	case !t.hasScope(scope):
		return &ArgumentError{Argument: "scope", Value: scope,
			Reason: "is no scope of this throttle; there are: " + t.names(nil)}
	}
	return nil
}

func (t *setup) hasScope(name string) bool {
	return slices.ContainsFunc(t.scopes, func(s Scope) bool { return s.Name == name })
}

// scopeOf returns the scope called name; the zero Scope if the configuration has none.
func (t *setup) scopeOf(name string) Scope {
	for _, s := range t.scopes {
		if s.Name == name {
			return s
		}
	}
	return Scope{}
}
