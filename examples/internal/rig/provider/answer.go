package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
)

// answer is a completion on its way to a client. If the client does not take it, nobody can tell the client so: errors
// of writing are ignored.
type answer struct {
	to      http.ResponseWriter
	id      string
	request chat.Request
	began   time.Time
	text    string
	finish  string // why it ends where it does
}

// begin sends the headers of a stream, if the answer is streamed.
func (a *answer) begin() {
	if a.request.Stream {
		a.to.Header().Set("Content-Type", "text/event-stream")
		a.chunk(chat.Choice{Delta: &chat.Message{Role: "assistant"}})
	}
}

// part streams the tokens from one number to another.
func (a *answer) part(from, to int64) {
	if a.request.Stream {
		each := int64(len(syllables[0]) + 1)
		a.chunk(chat.Choice{Delta: &chat.Message{Content: a.text[from*each : to*each]}})
	}
}

// end sends the end of the answer, with its usage.
func (a *answer) end(used chat.Usage) {
	if !a.request.Stream {
		a.to.Header().Set("Content-Type", "application/json")
		message := &chat.Message{Role: "assistant", Content: a.text}
		_ = json.NewEncoder(a.to).Encode(a.reply("chat.completion", &used, chat.Choice{Message: message, Finish: &a.finish}))
		return
	}
	a.chunk(chat.Choice{Delta: &chat.Message{}, Finish: &a.finish})
	if o := a.request.StreamOptions; o != nil && o.IncludeUsage {
		a.event(a.reply("chat.completion.chunk", &used))
	}
	fmt.Fprintf(a.to, "data: %s\n\n", chat.Done)
}

func (a *answer) chunk(choice chat.Choice) { a.event(a.reply("chat.completion.chunk", nil, choice)) }

func (a *answer) event(chunk chat.Reply) {
	data, _ := json.Marshal(chunk) // cannot fail for this struct
	fmt.Fprintf(a.to, "data: %s\n\n", data)
	_ = http.NewResponseController(a.to).Flush()
}

func (a *answer) reply(object string, used *chat.Usage, choices ...chat.Choice) chat.Reply {
	if choices == nil {
		choices = []chat.Choice{} // not null
	}
	return chat.Reply{ID: a.id, Object: object, Created: a.began.Unix(), Model: a.request.Model, Choices: choices,
		Usage: used}
}

// fail answers with an error instead of a completion.
func fail(w http.ResponseWriter, status int, code, message string) {
	kind := "invalid_request_error"
	if status == http.StatusTooManyRequests {
		kind = "rate_limit_error"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]chat.Failure{"error": {Message: message, Type: kind, Code: code}})
}
