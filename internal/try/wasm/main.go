//go:build js && wasm

// Command wasm is the part that computes of the page in which people try their limits. It gives the page one function,
// tryLimits, which takes a try.Input in JSON and a function, and calls that with the answer in JSON.
package main

import (
	"encoding/json"
	"errors"
	"syscall/js"

	"github.com/asynq-throttle/asynq-throttle/internal/try"
)

// answer has one of its fields.
type answer struct {
	Result *try.Result     `json:"result,omitempty"`
	Error  *try.FieldError `json:"error,omitempty"`
}

func main() {
	js.Global().Set("tryLimits", js.FuncOf(func(_ js.Value, args []js.Value) any {
		input, done := args[0].String(), args[1]
		go func() { done.Invoke(play(input)) }() // a call from JavaScript must not wait for timers
		return nil
	}))
	select {} // the page calls from now on
}

func play(input string) string {
	var in try.Input
	var a answer
	err := json.Unmarshal([]byte(input), &in)
	if err == nil {
		a.Result, err = try.Play(in)
	}
	if err != nil && !errors.As(err, &a.Error) {
		a.Error = &try.FieldError{Reason: err.Error()}
	}
	text, err := json.Marshal(a)
	if err != nil {
		panic(err) // numbers and texts alone
	}
	return string(text)
}
