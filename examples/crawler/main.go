// Crawler fetches pages of many hosts through asynq, politely: shaped under budgets
// of requests and of kilobytes, and by what each host asks for.
//
//	go run ./examples/crawler
//
// needs no other program and no network: Redis and a small web are inside the
// process. See the README.md beside this file for what to watch, and -h for the
// flags.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	logging.Disable() // go-redis would tell of each connection that fails, among the progress
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
