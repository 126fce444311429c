// Package explain says why a job or a task of asynq does not run. The command asynq-throttle prints
// the result, and the dashboard shows it. The package changes nothing and is safe for use by many
// goroutines. The names of the JSON fields are documented in docs/command.md and do not change.
package explain
