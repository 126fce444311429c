//go:build !race

package reliability_test

const raced = false
