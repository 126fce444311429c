// Package wire is the codec between the scripts of lua/ and the types of internal/line: it
// writes and reads the arguments and the replies of each script. The throttle writes arguments and
// reads replies; the model in throttletest reads arguments and writes replies; the tests of lua/
// compare replies.
//
// Instants and durations are microseconds, on Redis' clock. A reader returns ErrUnreadable for
// texts that no writer of this package and no script writes.
package wire
