package main

import (
	"flag"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	// Most of them wait most of the time; a flag on the command line wins.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
