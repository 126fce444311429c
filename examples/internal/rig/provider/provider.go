// Package provider is a provider of a language model, for examples and tests: it speaks
// OpenAI's chat completions, and makes up what it says. Its limits are real: requests and
// tokens of each model in any window, by its own record. What does not fit is answered 429.
// What a run of an example has done is worked out from that record.
package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
)

// mostBody is how long the body of a request may be, in bytes.
const mostBody = 1 << 20

// Options are the settings of a Provider.
type Options struct {
	Models   map[string]Limits // the limits of the models, by their names
	Window   time.Duration     // the window of all limits
	Incident Incident
	Seed     uint64 // the seed of the completions
	// FirstToken is how long a completion takes until its first token, and PerToken from each token to the next. 0 is
	// no time.
	FirstToken, PerToken time.Duration
}

// Provider is an http.Handler that serves POST /v1/chat/completions. It is safe for
// concurrent use.
//
// A request that arrives counts the tokens of its prompt and the most tokens of its completion. When it has been
// answered, it counts the tokens that it took, still at its arrival. A refused request counts nothing.
type Provider struct {
	Record  *Record
	options Options
	began   time.Time
	number  atomic.Int64 // the number of the last completion
	models  map[string]*model
}

// model is one model, and the requests that it served in its last window.
type model struct {
	limits Limits
	mu     sync.Mutex
	window window
}

// New returns a provider that has served nothing yet.
func New(o Options) *Provider {
	p := &Provider{Record: new(Record), options: o, began: time.Now(), models: make(map[string]*model)}
	for name, limits := range o.Models {
		p.models[name] = &model{limits: limits, window: window{length: o.Window}}
	}
	return p
}

// ServeHTTP answers one request.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/v1"+chat.Path {
		fail(w, http.StatusNotFound, "unknown_url", "there is only POST /v1"+chat.Path)
		return
	}
	var asked chat.Request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBody)).Decode(&asked); err != nil {
		fail(w, http.StatusBadRequest, "invalid_json", "the body cannot be read: "+err.Error())
		return
	}
	m := p.models[asked.Model]
	switch {
	case m == nil:
		fail(w, http.StatusNotFound, "model_not_found", fmt.Sprintf("there is no model %q", asked.Model))
	case len(asked.Messages) == 0:
		fail(w, http.StatusBadRequest, "invalid_messages", "there are no messages")
	case asked.MaxTokens < 1:
		fail(w, http.StatusBadRequest, "invalid_max_tokens", fmt.Sprintf("max_tokens %d is less than 1", asked.MaxTokens))
	case asked.MaxTokens > m.limits.Tokens-chat.PromptTokens(asked.Messages):
		fail(w, http.StatusBadRequest, "request_too_large",
			fmt.Sprintf("prompt and max_tokens are more than the %d tokens of a window", m.limits.Tokens))
	default:
		p.serve(w, r, m, asked)
	}
}

// serve answers a well-formed request.
func (p *Provider) serve(w http.ResponseWriter, r *http.Request, m *model, asked chat.Request) {
	noted := &Request{
		ID: r.Header.Get(chat.HeaderID), Model: asked.Model, Customer: asked.User,
		Prompt: chat.PromptTokens(asked.Messages), MaxTokens: asked.MaxTokens,
	}
	charged, wait := p.admit(w.Header(), m, noted)
	if charged == nil {
		w.Header().Set("Retry-After", retryAfter(wait))
		fail(w, http.StatusTooManyRequests, "rate_limit_exceeded",
			fmt.Sprintf("the limits of %s have no room for %d tokens; try again in %s",
				asked.Model, noted.Prompt+noted.MaxTokens, resetText(wait)))
		return
	}
	random := p.drawing(asked)
	tokens := length(random, asked.MaxTokens)
	a := &answer{
		to: w, id: "chatcmpl-" + strconv.FormatInt(p.number.Add(1), 10), request: asked,
		began: noted.At, text: words(random, tokens), finish: "stop",
	}
	if tokens == asked.MaxTokens {
		a.finish = "length"
	}
	made := p.produce(r.Context(), a)
	m.correct(charged, noted.Prompt+made)
	p.Record.end(noted, time.Now(), made)
	if made == tokens {
		a.end(chat.UsageOf(noted.Prompt, made))
	}
}

// admit notes a request, counts it if its model has room, and writes the limits' state into the headers. Without room
// the charge is nil, and the duration is how long it takes until there is room.
func (p *Provider) admit(h http.Header, m *model, r *Request) (*charge, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.At = time.Now() // one after the other, as they are counted
	limits, _ := p.Limits(r.Model, r.At)
	var charged *charge
	wait := m.window.wait(r.At, r.Prompt+r.MaxTokens, limits)
	if wait > 0 {
		r.Refused, r.End = true, r.At
	} else {
		charged = m.window.add(r.At, r.Prompt+r.MaxTokens)
	}
	p.Record.add(r)
	tellLimits(h, limits, m.window.used(r.At), m.window.reset(r.At))
	return charged, wait
}

// correct makes a request count the tokens that it took.
func (m *model) correct(c *charge, tokens int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.tokens = tokens
}

// tokensAtOnce is how many tokens are in one chunk of a stream.
const tokensAtOnce = 8

// produce waits for as long as a completion takes, and streams it meanwhile if the request asked for that. It returns
// how many tokens it has made: all, or those until its client hung up.
func (p *Provider) produce(ctx context.Context, a *answer) int64 {
	a.begin()
	all := chat.Tokens(a.text)
	pace := p.options.FirstToken
	for made := int64(0); made < all; {
		next := min(all-made, tokensAtOnce)
		if !rig.SleepUntil(ctx, time.Now().Add(pace+time.Duration(next)*p.options.PerToken)) {
			return made
		}
		pace, made = 0, made+next
		a.part(made-next, made)
	}
	return all
}
