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

	"github.com/asynq-throttle/asynq-throttle/lua"
)

// New returns the throttle called name: 1 to 64 of A-Z a-z 0-9 _ . -, and part
// of every key it uses in Redis. All processes that use the same name and Redis
// share its limits and should give the same scopes. New does not talk to Redis.
// The error is an *OptionError or wraps a *LimitError.
func New(name string, client redis.Scripter, scopes []Scope, opts *Options) (*Throttle, error) {
	if !validName(name) {
		return nil, &OptionError{Field: "name", Value: name, Reason: "want 1 to 64 of A-Z a-z 0-9 _ . -"}
	}
	if isNil(client) {
		return nil, &OptionError{Field: "client", Value: nil, Reason: "is nil"}
	}
	options, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := validateScopes(scopes); err != nil {
		return nil, err
	}
	fair, err := options.fairScope(scopes)
	if err != nil {
		return nil, err
	}
	t := &Throttle{
		name:     name,
		fair:     fair,
		kept:     lineKept(scopes, options.Lookahead),
		shares:   newShares(options),
		keys:     newKeys(name),
		scopes:   copyScopes(scopes),
		keyed:    make(map[string]struct{}),
		options:  options,
		redis:    newCaller(name, client, options),
		controls: newControls(),
		logged:   newRateLimitedLog(options.Logger),
	}
	for _, scope := range scopes {
		if scope.Name != Global {
			t.keyed[scope.Name] = struct{}{}
		}
	}
	if options.Fallback == FallbackLocal {
		t.local = newLocalShare(options.LocalShare)
	}
	return t, nil
}

// Client returns the client that the throttle asks Redis through: the one that it was made
// with, or a copy of that with the throttle's timeout. It is for packages beside it that
// keep something about a throttle under a key of their own.
func (t *Throttle) Client() redis.Scripter { return t.redis.client }

// script is a composed script, its verb and the hash that Redis knows it by.
type script struct{ name, text, hash string }

func newScript(name, text string) script {
	return script{name: name, text: text, hash: redis.NewScript(text).Hash()}
}

var (
	reserveScript  = newScript("reserve", lua.Reserve)
	peekScript     = newScript("peek", lua.Peek)
	cancelScript   = newScript("cancel", lua.Cancel)
	usageScript    = newScript("usage", lua.Usage)
	countScript    = newScript("count", lua.Count)
	pullScript     = newScript("pull", lua.Pull)
	sweepScript    = newScript("sweep", lua.Sweep)
	admitScript    = newScript("admit", lua.Admit)
	skipScript     = newScript("skip", lua.Skip)
	weedScript     = newScript("weed", lua.Weed)
	linesScript    = newScript("lines", lua.Lines)
	lanesScript    = newScript("lanes", lua.Lanes)
	explainScript  = newScript("explain", lua.Explain)
	waitingScript  = newScript("waiting", lua.Waiting)
	entriesScript  = newScript("entries", lua.Entries)
	settleScript   = newScript("settle", lua.Settle)
	pauseScript    = newScript("pause", lua.Pause)
	resumeScript   = newScript("resume", lua.Resume)
	setScript      = newScript("set", lua.Set)
	recallScript   = newScript("recall", lua.Recall)
	adoptScript    = newScript("adopt", lua.Adopt)
	controlsScript = newScript("controls", lua.Controls)
	checkScript    = newScript("check", lua.Check)
)

// scripts are all that a throttle runs.
var scripts = []script{
	reserveScript, peekScript, cancelScript, usageScript, countScript, pullScript, sweepScript, admitScript, skipScript, weedScript, linesScript,
	lanesScript, explainScript, waitingScript, entriesScript, settleScript, pauseScript, resumeScript, setScript, recallScript, adoptScript,
	controlsScript, checkScript,
}

// caller runs scripts with a timeout of its own and leaves Redis alone for a
// while when it keeps failing.
type caller struct {
	throttle string         // its name
	client   redis.Scripter // made to end its calls in time where that can be had
	punctual bool           // the client itself ends a call in time
	options  Options
	breaker  *gobreaker.CircuitBreaker[reply]
}

func newCaller(name string, client redis.Scripter, options Options) *caller {
	bounded, punctual := boundedBy(options.Timeout, client)
	return &caller{
		throttle: name,
		client:   bounded,
		punctual: punctual,
		options:  options,
		breaker: gobreaker.NewCircuitBreaker[reply](gobreaker.Settings{
			Name:        "throttle",
			MaxRequests: 1,
			Timeout:     options.BreakPeriod,
			ReadyToTrip: func(counts gobreaker.Counts) bool {
				return options.BreakAfter > 0 && counts.ConsecutiveFailures >= uint32(options.BreakAfter)
			},
			IsSuccessful: func(err error) bool { return !errors.Is(err, ErrUnavailable) },
			IsExcluded:   func(err error) bool { return errors.Is(err, context.Canceled) || gaveUp(err) },
		}),
	}
}

// boundedBy returns the client so that it ends a call after the timeout, if that
// can be had of it. A single server's client can be given another timeout on the
// same connections; others must heed the context's.
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

// run calls a script and returns its reply. Its errors are
// *UnavailableError, the context's own error, ErrState, or the script's refusal.
func (c *caller) run(ctx context.Context, s script, keys []string, args []any) (reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("throttle: not asked: %w", err)
	}
	reply, err := c.breaker.Execute(func() (reply, error) { return c.inTime(ctx, s, keys, args) })
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return nil, &UnavailableError{Failure: FailureBreaker, Err: err}
	}
	return reply, err
}

// pipeliner is a client that sends several commands at once.
type pipeliner interface{ Pipeline() redis.Pipeliner }

// runAll calls a script n times in one round trip. A reply that is nil is to be asked
// for by run, one by one: the client has no pipeline or does not end one in time, the
// script is not known, or whatever else.
func (c *caller) runAll(ctx context.Context, s script, n int, shape func(i int) (keys []string, args []any)) []reply {
	replies := make([]reply, n)
	client, can := c.client.(pipeliner)
	if !can || !c.punctual || n < 2 {
		return replies
	}
	bounded, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	pipe := client.Pipeline()
	commands := make([]*redis.Cmd, n)
	for i := range n {
		keys, args := shape(i)
		commands[i] = pipe.EvalSha(bounded, s.hash, keys, args...)
	}
	_, _ = pipe.Exec(bounded) // each command has its own error
	for i, command := range commands {
		if values, err := command.Slice(); err == nil {
			replies[i] = values
		}
	}
	return replies
}

// inTime returns after Options.Timeout at the latest, or soon after.
func (c *caller) inTime(ctx context.Context, s script, keys []string, args []any) (reply, error) {
	began := time.Now()
	reply, err := c.within(ctx, func(ctx context.Context) (reply, error) { return c.evaluate(ctx, s, keys, args) })
	if err != nil {
		reply, err = nil, c.classify(ctx, began, err)
	}
	if c.options.Observer != nil {
		c.observeCall(s, began, err)
	}
	return reply, err
}

// loadInTime makes a script known to Redis before it is called with these keys.
func (c *caller) loadInTime(ctx context.Context, s script, keys []string) error {
	began := time.Now()
	_, err := c.within(ctx, func(ctx context.Context) (reply, error) { return nil, c.load(ctx, s, keys) })
	if err != nil {
		return c.classify(ctx, began, err)
	}
	return nil
}

// within asks Redis something that ends after Options.Timeout, or soon after.
func (c *caller) within(ctx context.Context, ask func(ctx context.Context) (reply, error)) (reply, error) {
	bounded, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	if c.punctual {
		return ask(bounded)
	}
	return abandonable(bounded, ask)
}

// abandonable asks in a goroutine that is left behind when the time is up.
// The client's own timeouts end it then; the breaker bounds how many there are.
func abandonable(ctx context.Context, ask func(ctx context.Context) (reply, error)) (reply, error) {
	type result struct {
		reply reply
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

// evaluate runs a script by its hash and loads it where Redis does not know it:
// at first, after a restart, a failover or SCRIPT FLUSH. It is loaded, not sent
// with EVAL, since newer servers forget scripts that came by EVAL. Only where that
// does not help it is sent: the keys are on their way to another node of a cluster,
// which answers already and is not yet known to have them.
func (c *caller) evaluate(ctx context.Context, s script, keys []string, args []any) (reply, error) {
	reply, err := c.client.EvalSha(ctx, s.hash, keys, args...).Slice()
	if !isUnknownScript(err) {
		return reply, err
	}
	if err := c.load(ctx, s, keys); err != nil {
		return nil, err
	}
	reply, err = c.client.EvalSha(ctx, s.hash, keys, args...).Slice()
	if isUnknownScript(err) {
		reply, err = c.client.Eval(ctx, s.text, keys, args...).Slice()
	}
	return reply, err
}

func isUnknownScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// router is a client of a cluster.
type router interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
}

// load loads a script on the server that has the keys. A client of a cluster would
// load it on all nodes and fail where one of them, perhaps a replica, is away.
func (c *caller) load(ctx context.Context, s script, keys []string) error {
	cluster, ok := c.client.(router)
	if !ok || len(keys) == 0 {
		return c.client.ScriptLoad(ctx, s.text).Err()
	}
	node, err := cluster.MasterForKey(ctx, keys[0])
	if err != nil {
		return err
	}
	return node.ScriptLoad(ctx, s.text).Err()
}

// classify turns what the client answered to a call into this package's errors.
func (c *caller) classify(ctx context.Context, began time.Time, err error) error {
	text := err.Error()
	if outdated := outdated(text); outdated != nil {
		return outdated
	}
	switch {
	case ctx.Err() != nil:
		return &UnavailableError{Failure: FailureTimeout, Err: &gaveUpError{ctx.Err()}}
	case strings.Contains(text, "THROTTLE_STATE "):
		_, told, _ := strings.Cut(text, "THROTTLE_STATE ")
		key, _, _ := strings.Cut(told, " ")
		return &StateError{Key: key}
	case strings.Contains(text, "WRONGTYPE"):
		return fmt.Errorf("%w: %w", ErrState, err)
	case strings.Contains(text, "THROTTLE_"):
		return fmt.Errorf("throttle: the script refused its arguments: %w", err)
	}
	if told, _, repeats := strings.Cut(text, ", with args beginning with"); repeats {
		err = errors.New(told) // Redis repeats keys to who calls what it does not know
	}
	failure := failureOf(err)
	// The client's timer may be a moment ahead of the context's.
	if deadline, has := ctx.Deadline(); has && failure == FailureTimeout && deadline.Before(began.Add(c.options.Timeout)) {
		err = &gaveUpError{context.DeadlineExceeded}
	}
	return &UnavailableError{Failure: failure, Err: err}
}

func failureOf(err error) Failure {
	var network net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout() {
		return FailureTimeout
	}
	prefixes := []struct {
		prefix  string
		failure Failure
	}{
		{"READONLY", FailureReadOnly},
		{"OOM", FailureMemory},
		{"TRYAGAIN", FailureTryAgain},
		{"BUSY", FailureBusy},
		{"LOADING", FailureBusy},
		{"NOREPLICAS", FailureReplicas},
	}
	for _, p := range prefixes {
		if strings.Contains(err.Error(), p.prefix+" ") {
			return p.failure
		}
	}
	// The client went to and fro between the nodes of a slot that is being moved.
	if redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "MOVED") {
		return FailureTryAgain
	}
	return FailureOther
}

// isNil finds a nil client also where it is a nil pointer of a client's type.
func isNil(client redis.Scripter) bool {
	if client == nil {
		return true
	}
	v := reflect.ValueOf(client)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// slowReload is how long a client of a Cluster may go on by its old picture of it.
const slowReload = 2 * time.Second

// checkClient finds the settings of go-redis' Cluster client that make a recovery slow.
// A client of a single server, or of one behind Sentinel, is given the throttle's
// timeout by boundedBy; of others nothing is known.
func (c *caller) checkClient() []Finding {
	cluster, is := c.client.(*redis.ClusterClient)
	if !is {
		return nil
	}
	options := cluster.Options()
	var findings []Finding
	find := func(severity Severity, text, remedy string) {
		findings = append(findings, Finding{Severity: severity, What: "client", Text: text, Remedy: remedy})
	}
	if !options.ContextTimeoutEnabled {
		find(Warning, "the client of the Cluster heeds no deadline: a call that hangs is left behind in a goroutine until ReadTimeout ("+
			options.ReadTimeout.String()+") and its retries are over", "set ClusterOptions.ContextTimeoutEnabled")
	}
	if options.ClusterStateReloadInterval > slowReload {
		find(Warning, "after a failover the client of the Cluster may ask the node that is gone for up to "+options.ClusterStateReloadInterval.String(),
			"set ClusterOptions.ClusterStateReloadInterval to 500ms")
	}
	if most := 10 * c.options.Timeout; options.DialTimeout > most {
		find(Warning, "looking for the new primary the client of the Cluster may wait "+options.DialTimeout.String()+" for each node that is silent",
			"set ClusterOptions.DialTimeout to "+most.String()+" or less")
	}
	if options.ReadOnly || options.RouteByLatency || options.RouteRandomly {
		find(Note, "ReadOnly, RouteByLatency and RouteRandomly do nothing for the throttle: its scripts write, and are run by primaries",
			"leave them out if the client has no other user")
	}
	return findings
}
