package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/upstream"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// A language model's provider limits requests and tokens a minute, says in its headers what
// it serves, and refuses the second prompt. The refused prompt comes again, and no retry is
// spent.
func Example_languageModel() {
	server, err := miniredis.Run() // any Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	var asked atomic.Int64
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Ratelimit-Limit-Requests", "500")
		w.Header().Set("X-Ratelimit-Limit-Tokens", "200000")
		if asked.Add(1) == 2 {
			w.Header().Set("X-Ratelimit-Limit-Tokens", "100000") // half of what was agreed
			w.Header().Set("Retry-After-Ms", "50")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, `{"choices": [{"message": {"content": "Yes."}}], "usage": {"total_tokens": 150}}`)
	}))
	defer provider.Close()

	busy := &throttle.Options{Timeout: 5 * time.Second} // this Redis shares a machine that may be busy
	th, err := throttle.New("llm", client, scopes, busy)
	if err != nil {
		log.Fatal(err)
	}
	shaper, err := worker.New(th, client, promptJob, nil)
	if err != nil {
		log.Fatal(err)
	}
	config := asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel} // this is an example
	workers := asynq.NewServerFromRedisClient(client, shaper.Configure(config))
	mux := asynq.NewServeMux()
	mux.Use(shaper.Wrap) // first, so that it is the outermost
	m := &model{url: provider.URL, answers: make(chan string)}
	mux.HandleFunc("prompt", m.complete)
	if err := workers.Start(mux); err != nil {
		log.Fatal(err)
	}

	queue := asynq.NewClientFromRedisClient(client)
	for range 3 {
		payload, err := json.Marshal(prompt{Model: "large", Text: "Is water wet?", MaxTokens: 800})
		if err != nil {
			log.Fatal(err)
		}
		if _, err := queue.Enqueue(worker.NewTask("prompt", payload, nil)); err != nil {
			log.Fatal(err)
		}
	}
	for range 3 {
		fmt.Println(<-m.answers)
	}
	shaper.Stop() // tasks that wait for their start go back to asynq at once
	workers.Shutdown()
	for _, scope := range []string{"requests", "tokens"} {
		usage, err := inspect.New(th).Usage(context.Background(), scope, "large")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s used, %.2f of the limits are served\n", usage.Limits[0].Used, scope, usage.Served)
	}
	fmt.Println("put back:", shaper.Stats().PutBack)
	// Output:
	// Yes.
	// Yes.
	// Yes.
	// 3 requests used, 0.70 of the limits are served
	// 450 tokens used, 0.50 of the limits are served
	// put back: 1
}

// margin is how long a prompt may take from its grant to the provider.
const margin = 200 * time.Millisecond

// quarter is the window of the second limits.
const quarter = time.Minute / 4

// scopes are the provider's limits of a model: 500 requests and 200,000 tokens a minute. A third
// of them may start in a quarter of it, so that a batch does not use the minute up at once.
var scopes = []throttle.Scope{
	{Name: "requests", Margin: margin, Floor: 0.1, Limits: []throttle.Limit{
		throttle.PerMinute(500), throttle.Per(166, quarter),
	}},
	{Name: "tokens", Margin: margin, Floor: 0.1, Limits: []throttle.Limit{
		throttle.PerMinute(200_000), throttle.Per(66_666, quarter),
	}},
}

// prompt is the payload of a task.
type prompt struct {
	Model     string
	Text      string
	MaxTokens int64 // of the answer
}

// promptJob says what a prompt takes: one request, and the most tokens that it may.
func promptJob(_ context.Context, task *asynq.Task) (throttle.Job, error) {
	var p prompt
	if err := json.Unmarshal(task.Payload(), &p); err != nil {
		return throttle.Job{}, fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	tokens := int64(len(p.Text))/4 + p.MaxTokens // better: the model's tokenizer
	return throttle.Job{
		Weight: 1, // request
		Costs:  map[string]int64{"tokens": tokens},
		Keys:   map[string]string{"requests": p.Model, "tokens": p.Model},
	}, nil
}

// model asks a provider.
type model struct {
	url     string
	answers chan string
}

// complete is the handler.
func (m *model) complete(ctx context.Context, task *asynq.Task) error {
	resp, err := m.ask(ctx, task.Payload())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if wait := report(ctx, resp); wait != nil {
		return wait // the charge is given back, the prompt comes again, no retry is spent
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the provider answered %s", resp.Status) // the charge stays
	}
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   struct {
			TotalTokens int64 `json:"total_tokens"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err // nobody knows what it took: the charge stays
	}
	if err := worker.SettleCosts(ctx, map[string]int64{"tokens": answer.Usage.TotalTokens}); err != nil {
		log.Print(err) // it stays charged; no reason to ask the provider again
	}
	m.answers <- answer.Choices[0].Message.Content
	return nil
}

// ask sends a prompt. If no connection was made, the prompt has used nothing.
func (m *model) ask(ctx context.Context, prompt []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(prompt))
	if err != nil {
		return nil, worker.Untouched(err)
	}
	resp, err := http.DefaultClient.Do(req)
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return nil, worker.Untouched(err)
	}
	return resp, err
}

// report lets the limits of both scopes follow what the provider says of them. If the provider
// asks to wait, report returns the error for the handler to return, else nil.
func report(ctx context.Context, resp *http.Response) error {
	wait, refused := upstream.HTTPWait(resp) // 0, if the provider does not say for how long
	if !refused && resp.StatusCode != http.StatusOK {
		return nil // the answer says nothing of limits
	}
	for _, scope := range []string{"requests", "tokens"} { // named as the headers name what they count
		said := throttle.Report{Refused: refused, RetryAfter: wait}
		for _, limit := range upstream.HTTPLimits(resp) {
			if limit.Counts == scope {
				said.Limits = append(said.Limits, throttle.ReportedLimit{Window: time.Minute, Units: limit.Units, Remaining: -1})
			}
		}
		if _, err := worker.Report(ctx, scope, said); err != nil {
			log.Print(err) // the limits stay as they were; no reason to ask the provider again
		}
	}
	if refused {
		return worker.AskedToWait("requests", wait, nil)
	}
	return nil
}
