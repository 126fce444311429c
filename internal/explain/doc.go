// Package explain says why a job or a task of asynq does not run. The command
// asynq-throttle prints what it returns, the dashboard shows it. It changes nothing and is
// safe for use by many goroutines. The names of the JSON's fields are documented in
// docs/command.md and stay.
package explain
