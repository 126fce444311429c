// Package prompt is the work of a run: what customers ask of a language model, and when.
package prompt

import (
	"encoding/json"
	"fmt"
	"time"
)

// Kind tells how soon an answer is wanted.
type Kind string

// A person waits for the answer to an interactive prompt; nobody waits for the answer to a batch prompt.
const (
	Interactive Kind = "interactive"
	Batch       Kind = "batch"
)

// Prompt is what a customer asks. Its JSON is the payload of a task.
type Prompt struct {
	ID        string        `json:"id"`
	Kind      Kind          `json:"kind"`
	Customer  string        `json:"customer"`
	Text      string        `json:"text"`
	MaxTokens int64         `json:"max_tokens"` // the most tokens of the answer
	At        time.Duration `json:"-"`          // when it arrives, after the beginning
}

// Payload returns the prompt in the form in which a task carries it.
func (p *Prompt) Payload() []byte {
	payload, _ := json.Marshal(p) // cannot fail for this struct
	return payload
}

// Read returns the prompt that a task carries.
func Read(payload []byte) (*Prompt, error) {
	p := new(Prompt)
	if err := json.Unmarshal(payload, p); err != nil {
		return nil, fmt.Errorf("prompt: %w", err)
	}
	if p.Kind != Interactive && p.Kind != Batch {
		return nil, fmt.Errorf("prompt: %q is no kind", p.Kind)
	}
	return p, nil
}
