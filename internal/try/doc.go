// Package try plays a backlog under limits in virtual time, for the page on which people try their limits: once by this
// library, decided by the model of throttletest, and once by asynq's own recipe. What a person enters is text, and a
// bad text is an error that names its field. What is played is bounded, and a result says what was cut.
//
// The package has no state: its functions are safe for concurrent use.
package try
