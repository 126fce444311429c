//go:build !race

package throttle_test

const raced = false
