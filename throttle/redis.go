package throttle

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/lua"
)

// New returns the throttle called name: 1 to 64 of A-Z a-z 0-9 _ . -; the name is part of every key that
// it uses in Redis. All processes that use the same name and Redis share its limits and should pass the
// same scopes. New does not talk to Redis. The error is an *OptionError or wraps a *LimitError.
func New(name string, client redis.Scripter, scopes []Scope, opts *Options) (*Throttle, error) {
	if !wire.IsName(name) {
		return nil, &OptionError{Field: "name", Value: name, Reason: "want 1 to 64 of A-Z a-z 0-9 _ . -"}
	}
	if isNil(client) {
		return nil, &OptionError{Field: "client", Value: nil, Reason: "is nil"}
	}
	options, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := validateScopes(scopes, options.Lookahead); err != nil {
		return nil, err
	}
	fair, err := options.fairScope(scopes)
	if err != nil {
		return nil, err
	}
	return newThrottle(newSetup(name, fair, scopes, options, newCaller(name, client, options))), nil
}

// script is a composed script, its verb and its hash in Redis.
type script struct{ name, text, hash string }

func newScript(name, text string) script {
	return script{name: name, text: text, hash: redis.NewScript(text).Hash()}
}

var (
	reserveScript = newScript("reserve", lua.Reserve)
	pullScript    = newScript("pull", lua.Pull)
	leaveScript   = newScript("leave", lua.Leave)
	settleScript  = newScript("settle", lua.Settle)
	runningScript = newScript("running", lua.Running)
	setScript     = newScript("set", lua.Set)
	reportScript  = newScript("report", lua.Report)
	usageScript   = newScript("usage", lua.Usage)
	linesScript   = newScript("lines", lua.Lines)
	checkScript   = newScript("check", lua.Check)
	edgesScript   = newScript("edges", lua.Edges)
)

// scripts are all scripts that a throttle runs.
var scripts = []script{
	reserveScript, pullScript, leaveScript, settleScript, runningScript, setScript, reportScript, usageScript,
	linesScript, checkScript, edgesScript,
}

// caller runs scripts with its own timeout, and leaves Redis alone for a while after several failures.
type caller struct {
	throttle string         // its name
	keys     keys           // the control key is the only one that a call declares
	client   redis.Scripter // the one passed to New, or a copy of it with the throttle's timeout
	punctual bool           // the client itself ends a call in time
	options  Options
	answered func(at time.Time) // is called after each answer of Redis; must not block
	breaker  *gobreaker.CircuitBreaker[any]
}

func newCaller(name string, client redis.Scripter, options Options) *caller {
	bounded, punctual := boundedBy(options.Timeout, client)
	return &caller{
		throttle: name,
		keys:     newKeys(name),
		client:   bounded,
		punctual: punctual,
		options:  options,
		breaker: gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
			Name:        "throttle",
			MaxRequests: 1,
			Timeout:     options.BreakPeriod,
			ReadyToTrip: func(counts gobreaker.Counts) bool {
				return options.BreakAfter > 0 && int64(counts.ConsecutiveFailures) >= int64(options.BreakAfter)
			},
			IsSuccessful: func(err error) bool { return !errors.Is(err, ErrUnavailable) },
			IsExcluded:   isOwn,
		}),
	}
}

// boundedBy returns a client that ends a call after the timeout, and true, if it can make one. The client of
// a single server takes another timeout on the same connections; other clients must heed the context.
func boundedBy(timeout time.Duration, client redis.Scripter) (redis.Scripter, bool) {
	switch c := client.(type) {
	case *redis.Client:
		if !c.Options().ContextTimeoutEnabled {
			c = c.WithTimeout(timeout)
		}
		return c, true
	case *redis.ClusterClient:
		return c, c.Options().ContextTimeoutEnabled
	}
	return client, false
}

// isOwn reports whether the caller's own context ended a call, which says nothing about Redis.
func isOwn(err error) bool {
	var unavailable *UnavailableError
	return errors.As(err, &unavailable) && unavailable.own
}

// run calls a script and returns its reply. The error is an *UnavailableError, the context's own error, or
// matches ErrState.
func (c *caller) run(ctx context.Context, s script, args []any) (any, error) {
	if err := notEnded(ctx); err != nil {
		return nil, err
	}
	reply, err := c.breaker.Execute(func() (any, error) { return c.inTime(ctx, s, args) })
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return nil, &UnavailableError{Failure: failureBreaker, Err: err}
	}
	return reply, err
}

// notEnded returns the context's error if the context has ended, so that the call is not made.
func notEnded(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("throttle: not asked: %w", err)
	}
	return nil
}

// inTime runs a script and returns at the latest about Options.Timeout later.
func (c *caller) inTime(ctx context.Context, s script, args []any) (any, error) {
	began := time.Now()
	reply, err := c.within(ctx, func(ctx context.Context) (any, error) { return c.evaluate(ctx, s, args) })
	if err != nil {
		reply, err = nil, c.classify(ctx, began, err)
	}
	if c.options.Observer != nil {
		c.observeCall(s, began, err)
	}
	if err == nil && c.answered != nil {
		c.answered(began)
	}
	return reply, err
}

// loadInTime loads a script into Redis before it is called.
func (c *caller) loadInTime(ctx context.Context, s script) error {
	began := time.Now()
	_, err := c.within(ctx, func(ctx context.Context) (any, error) { return nil, c.load(ctx, s) })
	if err != nil {
		return c.classify(ctx, began, err)
	}
	return nil
}

// within calls ask and returns at the latest about Options.Timeout later.
func (c *caller) within(ctx context.Context, ask func(ctx context.Context) (any, error)) (any, error) {
	bounded, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	if c.punctual {
		return ask(bounded)
	}
	return abandonable(bounded, ask)
}

// abandonable calls ask in a goroutine that is left behind when the time is up. The client's own timeouts end
// the goroutine; the breaker bounds the number of such goroutines.
func abandonable(ctx context.Context, ask func(ctx context.Context) (any, error)) (any, error) {
	type result struct {
		reply any
		err   error
	}
	done := make(chan result, 1)
	go func() {
		reply, err := ask(ctx)
		done <- result{reply, err}
	}()
	select {
	case r := <-done:
		return r.reply, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// evaluateOnce runs a script by its hash, and loads it if Redis does not know it: at first, after a restart, a
// failover or SCRIPT FLUSH. The script is loaded, not sent with EVAL, since newer servers forget scripts that
// came with EVAL. It is sent with EVAL only if loading does not help: the keys are being moved to another
// node of a Cluster, which answers already while the client does not yet know that it has them.
func (c *caller) evaluateOnce(ctx context.Context, s script, args []any) (any, error) {
	keys := []string{c.keys.control}
	reply, err := c.client.EvalSha(ctx, s.hash, keys, args...).Result()
	if !isUnknownScript(err) {
		return reply, err
	}
	if err := c.load(ctx, s); err != nil {
		return nil, err
	}
	reply, err = c.client.EvalSha(ctx, s.hash, keys, args...).Result()
	if isUnknownScript(err) {
		reply, err = c.client.Eval(ctx, s.text, keys, args...).Result()
	}
	return reply, err
}

func isUnknownScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// router is a client of a Cluster.
type router interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
}

// load loads a script on the server that has the keys. A client of a Cluster would load it on all nodes, and
// fail if one of them, perhaps a replica, is away.
func (c *caller) load(ctx context.Context, s script) error {
	cluster, ok := c.client.(router)
	if !ok {
		return c.client.ScriptLoad(ctx, s.text).Err()
	}
	node, err := cluster.MasterForKey(ctx, c.keys.control)
	if err != nil {
		return err
	}
	return node.ScriptLoad(ctx, s.text).Err()
}

// classify turns an error of the client into one of this package.
func (c *caller) classify(ctx context.Context, began time.Time, err error) error {
	if ctx.Err() != nil {
		return &UnavailableError{Failure: failureTimeout, Err: ctx.Err(), own: true}
	}
	text := err.Error()
	switch {
	case errors.Is(err, ErrState):
		return err
	case strings.Contains(text, "FOREIGN "):
		_, rest, _ := strings.Cut(text, "FOREIGN ")
		key, _, _ := strings.Cut(rest, " ")
		return &StateError{Key: c.keys.prefix + key}
	case strings.Contains(text, "WRONGTYPE"):
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	var reply redis.Error
	replied := errors.As(err, &reply)
	if first, _, repeats := strings.Cut(text, ", with args beginning with"); repeats {
		err = errors.New(first) // Redis' answer to a command that it does not know repeats the keys
	}
	failure := failureOf(err)
	// The client's timer may be a moment ahead of the context's.
	if deadline, has := ctx.Deadline(); has && failure == failureTimeout && deadline.Before(began.Add(c.options.Timeout)) {
		return &UnavailableError{Failure: failure, Err: context.DeadlineExceeded, own: true}
	}
	return &UnavailableError{Failure: failure, Err: err, replied: replied}
}

// What a script is told about a key that is being moved to another node, by Redis and by Valkey from 8.1 on.
const (
	movedKey        = "non local key"
	valkeysMovedKey = "undeclared keys were accessed during rehashing of the slot"
)

func failureOf(err error) string {
	var network net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout() {
		return failureTimeout
	}
	text := err.Error()
	if strings.Contains(text, movedKey) || strings.Contains(text, valkeysMovedKey) {
		return failureTryAgain
	}
	prefixes := []struct{ prefix, failure string }{
		{"READONLY", failureReadOnly},
		{"OOM", failureMemory},
		{"TRYAGAIN", failureTryAgain},
		{"BUSY", failureBusy},
		{"LOADING", failureBusy},
		{"NOREPLICAS", failureReplicas},
	}
	for _, p := range prefixes {
		if strings.Contains(text, p.prefix+" ") {
			return p.failure
		}
	}
	// The client was redirected back and forth between the nodes of a slot that is being moved.
	if redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "MOVED") {
		return failureTryAgain
	}
	return failureOther
}

// isNil reports whether a client is nil, or a nil pointer of a client's type.
func isNil(client redis.Scripter) bool {
	if client == nil {
		return true
	}
	v := reflect.ValueOf(client)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
