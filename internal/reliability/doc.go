// Package reliability breaks things while jobs run. Each of its tests lets real
// asynq servers drain a few thousand jobs of several tenants under limits, on real
// Redis servers in real time, strikes in the middle, and counts what happened to the
// jobs and to the limits.
//
// A test appends a Row of what it measured to the file named by RELIABILITY_ROWS,
// if that is set; the command in table writes these rows into docs/reliability.md
// (make reliability).
package reliability
