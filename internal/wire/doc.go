// Package wire is the codec between the scripts of lua/ and the types of internal/line: how a
// script is asked, and how it answers. The throttle asks and reads answers; the model in
// throttletest reads what is asked and answers; the tests of lua/ compare answers.
//
// Instants and durations are microseconds, on Redis' clock. A reader returns ErrUnreadable for
// texts that no writer of this package and no script writes.
package wire
