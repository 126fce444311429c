// Package throttletest helps to test what is built on a throttle, and the
// throttle itself: Model is the algorithm in plain Go, Check finds windows over
// their limit in a list of starts, and Run holds any Subject to the contract.
// Tests import it, and programs that ask what would have been; no production code
// does.
package throttletest
