// Package view reads the state of a throttle for people: which jobs wait and for what, how far
// limits are used, how processes are configured, how busy Redis is. The command asynq-throttle
// prints the results as text or as JSON. The package changes nothing and is safe for use by many
// goroutines; its errors are those of package throttle. The names of the JSON fields are documented
// in docs/command.md and do not change.
package view
