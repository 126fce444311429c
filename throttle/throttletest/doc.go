// Package throttletest helps to test programs that use a throttle, and the throttle
// itself: Model is the algorithm in plain Go, Check finds windows over their limit
// in a list of starts, and Run tests a Subject against the contract. It is for tests
// and simulations, not for production code.
package throttletest
