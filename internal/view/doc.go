// Package view reads of a throttle what people look at: who waits and for what, how limits
// are used, how processes are configured, how busy Redis is. The command asynq-throttle
// prints what it returns, as text or as JSON. It changes nothing, is safe for use by many
// goroutines, and its errors are those of package throttle. The names of the JSON's fields
// are documented in docs/command.md and stay.
package view
