package main

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"net/url"
	"os"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/prompt"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// keyVariable is the environment variable with the key of a real provider.
const keyVariable = "LLM_API_KEY"

// The lengths of windows. The bundled provider behaves like a real one at fifteen times the speed:
// its windows last four seconds instead of a minute, and its answers take a fifteenth of the time.
const (
	realWindow    = time.Minute
	bundledWindow = 4 * time.Second
)

// The least and the greatest values of flags.
const (
	maxJobs      = 100_000
	maxCustomers = 1000
	leastWindow  = 500 * time.Millisecond
	maxWindow    = time.Hour
)

// When the incident begins and ends, and until when interactive prompts arrive, in windows.
const (
	incidentFrom  = 2.5
	incidentUntil = 5.5
	arriveFor     = 6.5
)

// options are the flags of this example; package rig has the flags that all examples share.
type options struct {
	prompt.Work
	baseURL  string // the URL of a real provider; empty for the bundled one
	key      string // the key for the real provider
	model    string
	window   time.Duration // the length of the provider's windows
	requests int64         // how many requests the model serves in any window
	tokens   int64         // how many tokens the model serves in any window
	budget   int64         // how many tokens a customer may use in a day
	incident float64       // the part of its limits that the bundled provider serves during an incident
	mode     throttle.Mode // the mode of the throttle
}

// parseOptions reads the command line.
func parseOptions(p *rig.Program, args []string) (options, error) {
	o := options{key: os.Getenv(keyVariable)}
	flags := p.Flags(
		"answers and summarises for several customers through asynq, within the limits of a language model.",
		"prompts", "asks them anew (default: after -seed, -jobs and -customers)")
	flags.IntVar(&o.Jobs, "jobs", 300, "how many prompts, a third of them interactive")
	flags.IntVar(&o.Customers, "customers", 4, "of how many customers")
	flags.Uint64Var(&o.Seed, "seed", 1, "what prompts and bundled answers are drawn from")
	flags.StringVar(&o.baseURL, "base-url", "",
		"`URL` of a real provider, such as https://api.openai.com/v1, with the key in "+keyVariable+
			" (default: the bundled provider, inside the process)")
	flags.StringVar(&o.model, "model", "parrot-1", "name of the `model` to ask")
	flags.DurationVar(&o.window, "window", 0, "length of the provider's windows (default 4s; with -base-url 1m)")
	flags.Int64Var(&o.requests, "requests", 60, "how many requests the provider serves in a window")
	flags.Int64Var(&o.tokens, "tokens", 30_000, "how many tokens the provider serves in a window")
	flags.Int64Var(&o.budget, "budget", 45_000, "how many tokens a customer may use in a day")
	flags.Float64Var(&o.incident, "incident", 0.6,
		"the `part` of its limits that the bundled provider serves during an incident, from 2.5 to 5.5 windows; 1 for none")
	flags.TextVar(&o.mode, "mode", throttle.Enforce,
		"of the throttle: `enforce`, shadow (it counts but delays nothing) or off, to see a run without the throttle")
	if err := p.Parse(flags, args); err != nil {
		return o, err
	}
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == "window" })
	o.setWindow(given)
	err := o.check()
	return o, err
}

// setWindow sets the window's length unless a flag gave it, and then the options that depend on it.
func (o *options) setWindow(given bool) {
	switch {
	case given:
	case o.baseURL == "":
		o.window = bundledWindow
	default:
		o.window = realWindow
	}
	o.Over = windows(arriveFor, o.window)
}

func (o *options) check() error {
	switch {
	case o.Jobs < 1 || o.Jobs > maxJobs:
		return fmt.Errorf("-jobs %d is not between 1 and %d", o.Jobs, maxJobs)
	case o.Customers < 1 || o.Customers > maxCustomers:
		return fmt.Errorf("-customers %d is not between 1 and %d", o.Customers, maxCustomers)
	case o.window < leastWindow || o.window > maxWindow:
		return fmt.Errorf("-window %s is not between %s and %s", o.window, leastWindow, maxWindow)
	case o.requests < 1 || o.tokens < 1 || o.budget < 1:
		return fmt.Errorf("-requests %d, -tokens %d or -budget %d is less than 1", o.requests, o.tokens, o.budget)
	case !(o.incident > 0 && o.incident <= 1):
		return fmt.Errorf("-incident %g is not above 0 and up to 1", o.incident)
	case o.model == "":
		return errors.New("-model is empty")
	}
	return errors.Join(o.checkURL(), o.checkHeaviest())
}

// checkURL refuses a wrong URL with an error that does not repeat the URL, which may contain a secret.
func (o *options) checkURL() error {
	u, err := url.Parse(o.baseURL)
	if o.baseURL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil) {
		return errors.New("-base-url is no http or https URL without a user")
	}
	return nil
}

// checkHeaviest refuses limits under which a prompt could never start.
func (o *options) checkHeaviest() error {
	var heaviest int64
	for _, p := range o.Prompts() {
		heaviest = max(heaviest, estimate(p))
	}
	switch {
	case most(o.tokens) < heaviest:
		return fmt.Errorf("a third of -tokens %d is less than the %d that one prompt may take", o.tokens, heaviest)
	case o.budget < heaviest:
		return fmt.Errorf("-budget %d is less than the %d tokens that one prompt may take", o.budget, heaviest)
	}
	return nil
}

// bundled describes the bundled provider. A provider with windows of a minute takes 0.4 s to
// the first token and makes 50 tokens a second; with windows of a tenth of a minute, it is ten times as fast.
func (o *options) bundled() provider.Options {
	pace := float64(o.window) / float64(realWindow)
	return provider.Options{
		Models: map[string]provider.Limits{o.model: {Requests: o.requests, Tokens: o.tokens}},
		Window: o.window,
		Incident: provider.Incident{From: windows(incidentFrom, o.window),
			Until: windows(incidentUntil, o.window), Part: o.incident},
		Seed:       o.Seed,
		FirstToken: time.Duration(pace * float64(400*time.Millisecond)),
		PerToken:   time.Duration(pace * float64(20*time.Millisecond)),
	}
}

// queue returns a name that depends on the prompts.
func (o *options) queue() string {
	hash := fnv.New32a()
	fmt.Fprint(hash, o.Work)
	return fmt.Sprintf("llm-%08x", hash.Sum32())
}

// windows returns how long a number of windows last.
func windows(number float64, window time.Duration) time.Duration {
	return time.Duration(number * float64(window))
}
