// Emailer sends a campaign of mails through asynq and over SMTP, shaped under
// quotas of each tenant, each recipient domain and all together.
//
//	go run ./examples/emailer
//
// needs no other program: Redis and the SMTP server are inside the process. See
// the README.md beside this file for what to watch, and -h for the flags.
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
