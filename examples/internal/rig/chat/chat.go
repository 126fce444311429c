// Package chat asks a language model over HTTP, in the form of OpenAI's chat completions,
// which most providers understand: the client, and what both sides say to each other.
package chat

// Path is where completions are asked for, behind a provider's base URL.
const Path = "/chat/completions"

// HeaderID is the header with the name that a client gives its request.
const HeaderID = "X-Client-Request-Id"

// Request is the body of a request, with the fields that are used here.
type Request struct {
	Model         string         `json:"model"`
	Messages      []Message      `json:"messages"`
	MaxTokens     int64          `json:"max_tokens"` // the most tokens of the completion
	Stream        bool           `json:"stream,omitempty"`
	StreamOptions *StreamOptions `json:"stream_options,omitempty"`
	User          string         `json:"user,omitempty"` // on whose behalf it is asked
}

// Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role,omitempty"` // system, user or assistant
	Content string `json:"content"`
}

// StreamOptions asks for a last chunk with the usage.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// Usage is how many tokens a request has used.
type Usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
}

// UsageOf returns the usage of a request, from the tokens of its prompt and of its completion.
func UsageOf(prompt, completion int64) Usage {
	return Usage{PromptTokens: prompt, CompletionTokens: completion, TotalTokens: prompt + completion}
}

// Reply is the body of an answer, or one chunk of a streamed one. The last chunk of a
// stream has a usage and no choices.
type Reply struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"` // chat.completion or chat.completion.chunk
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []Choice `json:"choices"`
	Usage   *Usage   `json:"usage,omitempty"`
	Error   *Failure `json:"error,omitempty"` // instead of all others
}

// Choice is a completion: a whole one in Message, or the next part of it in Delta.
type Choice struct {
	Index   int      `json:"index"`
	Message *Message `json:"message,omitempty"`
	Delta   *Message `json:"delta,omitempty"`
	Finish  *string  `json:"finish_reason"` // stop or length at the end, else null
}

// Failure is the reason why there is no completion.
type Failure struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    string `json:"code"`
}

// The rule by which tokens are counted: one for each four bytes of a text, which is about
// right for English, and some for each message. A real provider has a tokenizer.
const (
	bytesPerToken    = 4
	tokensPerMessage = 4
)

// Tokens returns how many tokens a text has: one for each four bytes, rounded up.
func Tokens(text string) int64 { return (int64(len(text)) + bytesPerToken - 1) / bytesPerToken }

// PromptTokens returns how many tokens the messages of a request have: those of their texts, and four for each message.
func PromptTokens(messages []Message) int64 {
	var tokens int64
	for _, m := range messages {
		tokens += tokensPerMessage + Tokens(m.Content)
	}
	return tokens
}
